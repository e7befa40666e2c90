"""Builds a wheel with the compiled modules: HATCH_BUILD_HOOK_ENABLE_CUSTOM=true pip wheel --no-deps .

Without that variable the wheel has the sources only, and needs no C compiler.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledModules(BuildHookInterface[Any]):
    """Compiles the modules unless that was done, and adds them to the wheel for this Python and platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it builds a wheel."""
        if version == "editable":  # `penstock compile` keeps those up to date
            return
        source = str(Path(self.root, "src"))
        sys.path.insert(0, source)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))
        os.environ["PENSTOCK_COMPILED"] = "off"
        from penstock.compiled import FOLDER, PACKAGE, build, current_folder  # noqa: PLC0415  # from the source above

        build.compile_modules()
        folder = current_folder()
        build_data["force_include"][str(folder)] = str(FOLDER.relative_to(PACKAGE.parent) / folder.name)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
