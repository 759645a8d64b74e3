"""Every row of the op table that names its form in PyTorch: its tested cases, forward and gradient."""
import numpy as np
import torch
import torch.nn.functional as F

from door import Batch

LARGE = 20_000  # elements; software GPUs take minutes for more
# Many shaders, of ops that are compared there by themselves; the conformance tests have the kernels of sorts and scans.
MADE_OF_OTHERS = {"indexing", "layout", "making", "order", "scan", "statistics"}


# PyTorch's gradient of ctc_loss holds only where log_softmax made its input; gradcheck and a sum over all paths judge Weft's.
# That of as_strided_scatter reads memory that nothing has written; differences judge Weft's.
OTHER_GRADIENTS = {"ctc_loss", "as_strided_scatter"}


def value_of(attribute):
    return float(attribute) if attribute in ("inf", "-inf", "nan") else attribute


def array_of(batch, given, seed):
    """The array of a case's input; None for one that is left out."""
    if given is None:
        return None
    shape = tuple(given["shape"])
    whole = given["dtype"] not in ("f32", "f64")
    if "values" in given:
        array = np.array(given["values"], dtype=np.float64).reshape(shape)
    elif whole:
        array = np.random.default_rng(seed).integers(int(given["lo"]), int(given["hi"]) + 1, shape)
    else:
        array = batch.array(shape, given["lo"], given["hi"])
    kinds = {"i32": np.int32, "u32": np.uint32, "bool": np.bool_}
    return array.astype(kinds.get(given["dtype"], np.float32))


def reference_of(op, case):
    """The expression of the row, over the inputs and attributes by their names."""
    attributes = {a["name"]: value_of(a.get("default")) for a in op["attributes"]}
    attributes.update({name: value_of(v) for name, v in case["attributes"].items()})
    names = [i["name"] for i in op["inputs"]]

    def reference(*tensors):
        scope = {"torch": torch, "F": F, "np": np, **attributes}
        if op["inputs"] and op["inputs"][-1]["repeated"]:
            scope[names[-1]] = list(tensors[len(names) - 1:])
            tensors = tensors[:len(names) - 1]
        scope.update(zip(names, tensors))
        return eval(op["names"]["torch"], scope)

    return reference


def cases(judge):
    compared = 0
    for dtype in judge.dtypes():
        batch = Batch(judge, dtype)
        for op in judge.ops.values():
            if "torch" not in op["names"] or (not judge.on_cpu and op["family"] in MADE_OF_OTHERS):
                continue
            # Two spatial axes represent one and three there, and a GPU has no kernels of decompositions.
            if not judge.on_cpu and (op["family"] == "decomposition" or op["name"].endswith(("1d", "3d"))):
                continue
            for number, case in enumerate(op["cases"] if judge.on_cpu else op["cases"][:1]):
                inputs = case["inputs"]
                if not judge.on_cpu and sum(int(np.prod(i["shape"])) for i in inputs if i) > LARGE:
                    continue
                arrays = [array_of(batch, given, 100 * number + k) for k, given in enumerate(inputs)]
                attributes = dict(case["attributes"])
                if not op["inputs"] and any(a["name"] == "dtype" for a in op["attributes"]):
                    attributes.setdefault("dtype", {np.float32: "f32", np.float64: "f64"}[dtype])
                title = f"{op['name']}: {case['name']}"
                lists = [batch.steps, batch.gradients, batch.checks]
                before = [len(each) for each in lists]
                try:
                    batch.case(title, op["name"], arrays, reference_of(op, case), attributes,
                               gradient=case["gradients"] and op["name"] not in OTHER_GRADIENTS, relative=2e-5 if dtype == np.float32 else 1e-11)
                except Exception as error:  # of PyTorch: the row's expression does not hold for this case
                    judge.failures.append(f"{title}: {op['names']['torch']} fails: {error}")
                    for each, length in zip(lists, before):
                        del each[length:]
                compared += 1
        batch.run()
    if compared < (80 if judge.on_cpu else 25):
        judge.failures.append(f"only {compared} cases of rows were compared")


SUBJECTS = [cases]
