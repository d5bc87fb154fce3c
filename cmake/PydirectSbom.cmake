# The wheel's bill of materials (PEP 770, CycloneDX): what is compiled into it, in the versions that this build has found.
# Libraries that auditwheel copies into a wheel are listed by auditwheel, in a file of its own beside this one.
set(PYDIRECT_SBOM_COMPONENTS "")
set(PYDIRECT_SBOM_REFS "")

macro(pydirect_sbom_component name version purl license url)
  if(PYDIRECT_SBOM_REFS)
    string(APPEND PYDIRECT_SBOM_COMPONENTS ",")
    string(APPEND PYDIRECT_SBOM_REFS ", ")
  endif()
  string(APPEND PYDIRECT_SBOM_REFS "\"${purl}\"")
  string(APPEND PYDIRECT_SBOM_COMPONENTS "
    {
      \"type\": \"library\",
      \"bom-ref\": \"${purl}\",
      \"name\": \"${name}\",
      \"version\": \"${version}\",
      \"purl\": \"${purl}\",
      \"licenses\": [{ \"expression\": \"${license}\" }],
      \"externalReferences\": [{ \"type\": \"vcs\", \"url\": \"${url}\" }]
    }")
endmacro()

pydirect_sbom_component(pybind11 "${pybind11_VERSION}" "pkg:pypi/pybind11@${pybind11_VERSION}"
  "BSD-3-Clause" "https://github.com/pybind/pybind11")
pydirect_sbom_component(Eigen "${Eigen3_VERSION}" "pkg:generic/eigen@${Eigen3_VERSION}"
  "MPL-2.0" "https://gitlab.com/libeigen/eigen")
# delvewheel writes no list of what it copies: the OpenMP runtime that comes with the compiler.
if(WIN32 AND OpenMP_CXX_FOUND AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  pydirect_sbom_component(libomp "${CMAKE_CXX_COMPILER_VERSION}" "pkg:generic/libomp@${CMAKE_CXX_COMPILER_VERSION}"
    "Apache-2.0 WITH LLVM-exception" "https://github.com/llvm/llvm-project")
endif()

execute_process(COMMAND "${Python_EXECUTABLE}" -c "import Cython; print(Cython.__version__, end='')"
  OUTPUT_VARIABLE CYTHON_VERSION)
configure_file(cmake/pydirect.cdx.json.in pydirect.cdx.json @ONLY)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/pydirect.cdx.json" DESTINATION "${SKBUILD_METADATA_DIR}/sboms")
