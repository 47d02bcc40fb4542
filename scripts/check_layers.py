#!/usr/bin/env python3
"""Fails on an include or a link that breaks the order of the folders, or on one that a public header must not have.

Usage: check_layers.py ROOT        check the tree
       check_layers.py --self-test check the checker with trees that are wrong on purpose
"""
import pathlib
import re
import sys
import tempfile

# In order of dependency (ARCHITECTURE.md). The layers of one row do not include each other, but for those in SIBLINGS.
LAYERS = [["base"], ["plan"], ["device"], ["mesh"], ["shard", "kernels"], ["attention"], ["models", "data"],
          ["train", "rollout", "report"]]
# train writes what report defines, and asks rollout for responses.
SIBLINGS = {("train", "report"), ("train", "rollout")}
TORCH_FREE = {"base", "plan", "data", "report"}
TORCH = re.compile(r"^(ATen|torch|c10|c10d|caffe2)/")
HIDDEN = re.compile(r"^(nlohmann|fmt|spdlog|pcre2|utf8proc|gloo|CLI|toml\+\+|nccl|cudnn)([./]|$)|\.cuh$")
# Folders of one backend: their headers are for themselves.
INTERNAL = {"cuda", "cudnn", "nccl", "gloo"}
LIBRARY = re.compile(r"^\s*ringfold_library\((\w+)([^)]*)\)", re.M)
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)


def rank_of(layer):
    return next((i for i, row in enumerate(LAYERS) if layer in row), None)


def layer_of(path):
    parts = pathlib.PurePath(path).parts
    return parts[1] if len(parts) > 2 and parts[0] == "ringfold" else None


def may_use(layer, other):
    return layer == other or rank_of(other) < rank_of(layer) or (layer, other) in SIBLINGS


def links_of(root):
    """Folder -> folders that its library links to, directly or through others (CMakeLists.txt)."""
    direct = {name: set(re.findall(r"ringfold::(\w+)", rest))
              for name, rest in LIBRARY.findall((root / "CMakeLists.txt").read_text())}
    links = {}
    for name in direct:
        reached, todo = set(), [name]
        while todo:
            for other in direct.get(todo.pop(), ()):
                if other not in reached:
                    reached.add(other)
                    todo.append(other)
        links[name] = reached
    return links


def faults_of(path, text, root, links):
    """Faults of one file: path is relative to src, e.g. ringfold/plan/plan.h."""
    layer = layer_of(path)
    if rank_of(layer) is None:
        return [f"src/{path}: folder {layer} is not in the list of layers"]
    faults = []
    for match in INCLUDE.finditer(text):
        include = match.group(1)
        where = f"src/{path}:{text.count(chr(10), 0, match.start(1)) + 1}"
        other = layer_of(include)
        if include.startswith("ringfold/"):
            if other is None or rank_of(other) is None:
                faults.append(f"{where}: {include} is in no layer")
            elif not (root / "src" / include).is_file():
                faults.append(f"{where}: {include} does not exist")
            elif not may_use(layer, other):
                faults.append(f"{where}: {layer} must not include {other} ({include})")
            elif other != layer and other not in links.get(layer, ()):
                faults.append(f"{where}: {layer} includes {other} but does not link to it ({include})")
        if layer in TORCH_FREE and TORCH.match(include):
            faults.append(f"{where}: {layer} must not know torch ({include})")
        if str(path).endswith(".h") and not INTERNAL & set(pathlib.PurePath(path).parts) and HIDDEN.search(include):
            faults.append(f"{where}: a public header must not include {include}")
    return faults


def check(root):
    src = root / "src"
    files = sorted(p for p in src.rglob("*") if p.suffix in (".h", ".cpp", ".cu", ".cuh"))
    links = links_of(root)
    faults = [f"CMakeLists.txt: {name} must not link to {other}" for name, others in links.items()
              for other in sorted(others) if rank_of(name) is None or rank_of(other) is None or not may_use(name, other)]
    for file in files:
        faults += faults_of(file.relative_to(src), file.read_text(encoding="utf-8"), root, links)
    return files, faults


def self_test():
    tree = {
        "../CMakeLists.txt": "ringfold_library(base)\nringfold_library(plan DEPENDS ringfold::base)\n"
                             "  ringfold_library(mesh TORCH DEPENDS ringfold::plan)\nringfold_library(data DEPENDS\n"
                             "  ringfold::base)\nringfold_library(report DEPENDS ringfold::plan)\n"
                             "ringfold_library(train DEPENDS ringfold::report PRIVATE fmt::fmt)\n",
        "ringfold/base/error.h": "#include <string>\n",
        "ringfold/plan/plan.h": '#include "ringfold/base/error.h"\n',
        "ringfold/report/metrics.h": "#include <vector>\n",
        "ringfold/train/step.h": '#include "ringfold/report/metrics.h"\n',
        "ringfold/train/step.cpp": "#include <fmt/format.h>\n#include <ATen/ATen.h>\n",
    }
    bad = {
        "upwards": ("ringfold/base/bad.h", '#include "ringfold/plan/plan.h"\n', "base must not include plan"),
        "sideways": ("ringfold/report/bad.cpp", '\n#include "ringfold/train/step.h"\n', "bad.cpp:2: report must not"),
        "torch in the planner": ("ringfold/plan/bad.cpp", "#include <ATen/ATen.h>\n", "plan must not know torch"),
        "torch in data": ("ringfold/data/bad.h", "# include <c10/util/Half.h>\n", "data must not know torch"),
        "JSON in a header": ("ringfold/train/bad.h", "#include <nlohmann/json.hpp>\n", "must not include nlohmann"),
        "fmt in a header": ("ringfold/base/bad.h", "#include <fmt/format.h>\n", "must not include fmt"),
        "no such header": ("ringfold/plan/bad.h", '#include "ringfold/base/none.h"\n', "does not exist"),
        "not linked": ("ringfold/data/bad.cpp", '#include "ringfold/plan/plan.h"\n', "does not link to it"),
        "a link upwards": ("../CMakeLists.txt", "ringfold_library(plan DEPENDS ringfold::base ringfold::mesh)\n",
                           "plan must not link to mesh"),
        "no such layer": ("ringfold/extra/bad.h", "", "not in the list of layers"),
    }
    for name, extra in [("a good tree", None)] + list(bad.items()):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            files = dict(tree)
            if extra:
                files[extra[0]] = files.get(extra[0], "") + extra[1]
            for path, text in files.items():
                (root / "src" / path).parent.mkdir(parents=True, exist_ok=True)
                (root / "src" / path).write_text(text)
            faults = check(root)[1]
            found = len(faults) == 1 and extra[2] in faults[0] if extra else not faults
            if not found:
                print(f"check_layers: self-test '{name}' failed: {faults}")
                return 1
    print(f"check_layers: self-test: a good tree passes, {len(bad)} faults are found")
    return 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    if self_test() != 0:
        return 1
    files, faults = check(root)
    if not files:
        print(f"check_layers: no sources under {root}/src")
        return 1
    for fault in faults:
        print(fault)
    print(f"check_layers: {len(files)} files of src/ringfold, order {' < '.join('|'.join(row) for row in LAYERS)}: "
          f"{len(faults)} fault{'' if len(faults) == 1 else 's'}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
