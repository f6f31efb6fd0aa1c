"""The configuration of a pipeline as a file, for commands that submit its jobs to Spark."""

from __future__ import annotations

from pathlib import Path

import yaml

from support.pipeline import Pipeline

JARS = Path(__file__).parents[2] / "build" / "jars"


def config_file(pipeline: Pipeline, **properties: object) -> str:
    """Write the configuration of a pipeline with its source, and return the path of the file.

    The commands and the pipeline share the target and the offsets.
    """
    own = {
        "pipeline": "test",
        "target": pipeline.target,
        "offsets.file": str(pipeline.folder / "offsets.json"),
        "table.include.list": f"{pipeline.schema}\\..*",
        "database": pipeline.sandbox.state.settings,
        "spark.jars": str(JARS),
    }
    path = pipeline.folder / "pipeline.yaml"
    path.write_text(yaml.safe_dump({**own, **pipeline.properties, **properties}))
    return str(path)
