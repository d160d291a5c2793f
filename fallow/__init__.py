"""Define the core: models, protocols, settings, errors and plugins.

Third parties import only this package. It is small and light: it imports no engine, no client and
no frame library at module level, only inside a function that needs one.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from fallow.fleet import Fleet

__version__ = "0.1.0"


def connect(
    home: "Path | str | None" = None,
    *,
    config: "Path | str | None" = None,
    cluster: str | None = None,
) -> "Fleet":
    """Open the warehouse in `home` for reading, and return the fleet that it describes.

        with fallow.connect("/var/lib/fallow") as fleet:
            print(fleet.spend(by="team").to_polars())

    `home`, `config` and `cluster` are the command line's --home, --config and --cluster; without
    them ./fallow.yaml and FALLOW_* apply, as there. The implementation is the entry point of the
    group `fallow.connect`, so that this package imports nothing of it.

    Raises:
        UsageError: a setting is not legal, or no implementation is installed.
        WarehouseError: there is no warehouse, or it cannot be used as it is.
        TemporaryError: the catalog does not answer.
    """
    # Imported here: `import fallow` stays free of pyarrow.
    fleet: Fleet = import_module("fallow.fleet").open_fleet(home, config=config, cluster=cluster)
    return fleet
