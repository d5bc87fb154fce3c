"""Builder of ONNX graphs: constants, operators, four-bit initialisers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect.quantized.packing import pack_dense

# The first operator set with four-bit integers, and its file version: later ones are refused by current runtimes.
OPSET = 21
IR_VERSION = 10


def import_onnx() -> Any:
    """Return the module `onnx`.

    Raises ImportError with the extra to install.
    """
    try:
        import onnx
    except ImportError:
        raise ImportError('to_onnx requires onnx. Install it with: pip install "pydirect[onnx]"') from None
    return onnx


class Graph:
    """Nodes and initialisers of a graph under construction; values are named by strings."""

    def __init__(self) -> None:
        self.onnx = import_onnx()
        self.nodes: list[Any] = []
        self.initialisers: list[Any] = []
        self.constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def op(self, kind: str, *inputs: str | ArrayLike, output: str | None = None, **attributes: Any) -> str:
        """Add a node with one output and return its name; arrays become initialisers."""
        names = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        output = output or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, names, [output], **attributes))
        return output

    def constant(self, value: ArrayLike, name: str | None = None) -> str:
        """Return the name of an initialiser with these values; equal ones are shared."""
        array = np.asarray(value)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self.constants:
            self.constants[key] = name or f"constant_{len(self.initialisers)}"
            self.initialisers.append(self.onnx.numpy_helper.from_array(array, self.constants[key]))
        return self.constants[key]

    def four_bits(self, values: NDArray[Any], name: str) -> str:
        """Return the name of an initialiser of type INT4, or UINT4 if no value is negative."""
        kind = self.onnx.TensorProto.INT4 if values.min(initial=0) < 0 else self.onnx.TensorProto.UINT4
        packed = pack_dense((values.astype(np.int64) & 15).astype(np.uint8), 4)
        # As raw bytes: the other encoding takes five bytes for two values.
        self.initialisers.append(self.onnx.helper.make_tensor(name, kind, values.shape, packed.tobytes(), raw=True))
        return name

    def cast(self, value: str, dtype: Any) -> str:
        """Add a conversion to a NumPy type."""
        return self.op("Cast", value, to=self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def model(self, inputs: dict[str, Any], outputs: dict[str, Any], producer: str, doc: str) -> Any:
        """Return the checked model; inputs and outputs are given as (dtype, shape)."""
        helper = self.onnx.helper

        def infos(values: dict[str, Any]) -> list[Any]:
            return [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
                for name, (dtype, shape) in values.items()
            ]

        graph = helper.make_graph(self.nodes, "pydirect", infos(inputs), infos(outputs), self.initialisers)
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="pydirect",
            producer_version=producer,
            doc_string=doc,
        )
        self.onnx.checker.check_model(model, full_check=True)
        return model
