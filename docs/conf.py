"""Settings of the documentation, built by `python -m sphinx -W -n docs build/docs`.

With `-D plot_gallery=0` the examples are shown without having been run.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pydirect

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent / "_ext")]  # gallery_settings, reference

project = "pydirect"
author = "The pydirect developers"
project_copyright = author
version = release = pydirect.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "sphinx-mathjax-offline",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
    "sphinx_design",
    "sphinx_copybutton",
    "reference",  # of _ext
]
exclude_patterns = ["gallery", "paper"]  # sources: of examples, made into pages by sphinx-gallery, and of the article
default_role = "code"
nitpicky = True

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4

autosummary_generate = False  # pages of the reference are written by _ext/reference.py
autodoc_member_order = "bysource"  # alphabetically, operators would come first
autodoc_typehints = "none"  # numpydoc's sections have them
numpydoc_show_class_members = False

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "examples",
    "backreferences_dir": "examples/backreferences",
    "doc_module": ("pydirect",),
    "download_all_examples": False,
    "remove_config_comments": True,
    "plot_gallery": "True",
    "write_computation_times": False,
    "show_signature": False,
    "abort_on_example_error": True,
    "image_srcset": ["2x"],
    "min_reported_time": 3600,
    "nested_sections": False,
    "reset_modules": ("matplotlib", "gallery_settings.set_style"),
    "subsection_order": "gallery_settings.order_of_section",
    "within_subsection_order": "gallery_settings.order_of",
}

toc_object_entries_show_parents = "hide"

html_theme = "pydata_sphinx_theme"
html_title = "pydirect"
html_static_path = ["_static"]
html_css_files = ["pydirect.css"]
html_show_sourcelink = False
html_sidebars = {page: [] for page in ("index", "start/index", "benchmarks", "changelog")}  # no others below
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 6,
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
}
