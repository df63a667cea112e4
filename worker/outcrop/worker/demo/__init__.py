"""The demonstration: order threads on an embedded broker, with a worker killed midway.

`orders` is the graph, `payments` the service it pays at, `driver` the shop that sends and
answers, `view` what is shown meanwhile, `report` what is shown at the end, and `run` puts
them together. Nothing here is used by the rest of the worker.
"""

from __future__ import annotations
