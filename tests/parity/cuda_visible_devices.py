"""Which devices torch.cuda counts for values of CUDA_VISIBLE_DEVICES on a machine of four GPUs.

python tests/parity/cuda_visible_devices.py > tests/data/hardware/cuda_visible_devices.json
"""

import json
import os

import torch.cuda

UUIDS = ["GPU-8f2a0c11", "GPU-8f2b77aa", "GPU-01c0ffee", "GPU-f00dbabe"]
VALUES = [
    "", "0", "0,1,2,3", "3,1", "-1", "0,-1,2", "NoDevFiles", "1,NoDevFiles,2", "0,7,1", "7", "1,1", "2,0,2", " 1 , 2 ",
    "1gpu2,2ampere", "+1", "abc", "0,,1", "GPU-01c0ffee", "GPU-01", "GPU-8f2", "GPU-f00d,GPU-8f2a", "GPU-f00d,0",
    "GPU-ffff", "GPU-01,GPU-01",
]


def visible(value):
    os.environ["CUDA_VISIBLE_DEVICES"] = value
    devices = torch.cuda._parse_visible_devices()
    if devices and isinstance(devices[0], str):
        return torch.cuda._transform_uuid_to_ordinals(devices, UUIDS)
    kept = []
    for device in devices:
        if device >= len(UUIDS):
            break
        kept.append(device)
    return kept


print(json.dumps({"uuids": UUIDS, "cases": [{"value": v, "visible": visible(v)} for v in VALUES]}, indent=1))
