"""The graph API for hand use: capture eager code, replay it.

>>> g = torchair.npu.NPUGraph()
>>> with torchair.npu.graph(g):
...     y = model(x)
>>> x.copy_(other)
>>> g.replay()  # y holds model(other)

After `import torch_npu` the same objects are in torch.npu.
"""

from __future__ import annotations

from .callables import make_graphed_callables
from .debug import (
    super_kernel_scope_begin,
    super_kernel_scope_end,
)
from .graphs import (
    NPUGraph,
    graph,
    graph_pool_handle,
    is_current_stream_capturing,
)
from .limits import (
    get_device_limit,
    get_stream_limit,
    reset_stream_limit,
    set_device_limit,
    set_stream_limit,
)
from .shown import print_npugraph_tensor, save_npugraph_tensor
from .streams import (
    Event,
    ExternalEvent,
    ExternalStream,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    set_stream,
    stream,
    synchronize,
)
from .tasks import (
    graph_task_group_begin,
    graph_task_group_end,
    graph_task_update_begin,
    graph_task_update_end,
)
from .update import NpuGraphOpHandler, register_npu_graph_handler
from .weak import weak_ref_tensor

__all__ = [
    "Event",
    "ExternalEvent",
    "ExternalStream",
    "NPUGraph",
    "NpuGraphOpHandler",
    "Stream",
    "StreamContext",
    "current_stream",
    "default_stream",
    "get_device_limit",
    "get_stream_limit",
    "graph",
    "graph_pool_handle",
    "graph_task_group_begin",
    "graph_task_group_end",
    "graph_task_update_begin",
    "graph_task_update_end",
    "is_current_stream_capturing",
    "make_graphed_callables",
    "print_npugraph_tensor",
    "register_npu_graph_handler",
    "reset_stream_limit",
    "save_npugraph_tensor",
    "set_device_limit",
    "set_stream",
    "set_stream_limit",
    "stream",
    "super_kernel_scope_begin",
    "super_kernel_scope_end",
    "synchronize",
    "weak_ref_tensor",
]
