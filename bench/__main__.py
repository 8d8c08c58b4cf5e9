"""Everything, and then the table: python -m bench."""

from __future__ import annotations

from bench import ingest, parked, publish, streams
from bench.board import show

show(ingest.measure, publish.measure, streams.measure, parked.measure)
