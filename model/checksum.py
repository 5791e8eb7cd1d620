"""One digest for a set of tensors: what a bit that flips in a saved file cannot keep."""

import hashlib
import json
from collections.abc import Mapping

import torch
from torch import Tensor


def tensors_digest(tensors: Mapping[str, Tensor]) -> str:
    """Hash of names, types, shapes and bytes, the same in whatever order the tensors come.

    Against damage, not against malice: whoever changes a file can change its digest too. Bytes
    count, not values: 0.0 and -0.0 differ, and a NaN equals itself. A tensor that is not
    contiguous or not on the CPU is copied, one at a time.

    Returns:
        64 hexadecimal digits.
    """
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach()
        # The shape and the type fix the number of bytes, so no two sets look alike in a row.
        head = json.dumps([name, str(tensor.dtype), list(tensor.shape)])
        digest.update(f"{head}\n".encode())
        digest.update(tensor.cpu().reshape(-1).contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()
