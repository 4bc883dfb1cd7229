"""pytest in one of several processes that run the same tests together.

    pytest_share.py FOLDER [pytest's arguments]

Every process finds all tests. A file is run by the first that comes to it,
which it tells the others by a file in FOLDER: empty at the start, the same for
all. So the tests of a file stay in one process and in their order.
"""

import hashlib
import os
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest


class Share:
    def __init__(self, folder):
        self.folder = Path(folder)
        self.mine = {}  # file of tests, or what failed to load: taken by us

    def take(self, name):
        """Whether `name` is ours; asked once, decided for all."""
        if name not in self.mine:
            digest = hashlib.sha1(name.encode()).hexdigest()
            try:
                os.close(os.open(self.folder / digest, os.O_CREAT | os.O_EXCL))
                self.mine[name] = True
            except FileExistsError:
                self.mine[name] = False
        return self.mine[name]

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector):
        """A file that cannot be loaded fails once, not in every process."""
        report = yield
        if report.failed and not self.take(f"load {collector.nodeid}"):
            report.outcome, report.longrepr, report.result = "passed", None, []
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        """Files of many tests first: the last to end should be short."""
        size = Counter(item.path for item in items)
        items.sort(key=lambda item: (-size[item.path], item.path))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session):
        """Runs the files that are ours. Which comes after one is not known
        when it ends, so every fixture ends with it."""
        for item, after in pairwise([*session.items, None]):
            if self.take(str(item.path)):
                same = after is not None and after.path == item.path
                item.ihook.pytest_runtest_protocol(
                    item=item, nextitem=after if same else None
                )
        return True


if __name__ == "__main__":
    folder, *args = sys.argv[1:]
    args.append("--continue-on-collection-errors")
    sys.exit(pytest.main(args, plugins=[Share(folder)]))
