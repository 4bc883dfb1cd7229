"""pytest plugin of device_tests.py: a share of the tests, a line of JSON for
each, and an end where the device has failed: what comes after a fault of a
kernel fails too, and says nothing."""

import json
import os
import sys
import zlib

import pytest

FAULT = 7  # exit status: the device is gone for this process
SHOWN = 1500  # characters of a failure
_done: set[str] = set()


def pytest_addoption(parser):
    parser.addoption("--share", default="0/1", help="i/n: the i-th of n")
    parser.addoption("--results", help="lines go here; what is there is done")


def pytest_configure(config):
    path = config.getoption("--results")
    if os.path.exists(path):
        with open(path) as lines:
            _done.update(json.loads(line)[0] for line in lines)


def pytest_collection_modifyitems(config, items):
    share, of = map(int, config.getoption("--share").split("/"))
    items[:] = [
        item
        for item in items
        if zlib.crc32(item.nodeid.split(" at 0x")[0].encode()) % of == share
        and item.nodeid not in _done
    ]


def _note(config, node, outcome, seconds, text):
    with open(config.getoption("--results"), "a") as lines:
        row = [node, outcome, round(seconds, 2), text]
        lines.write(json.dumps(row) + "\n")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    _report(item.config, report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """A file that cannot be imported is a failure, in one share."""
    report = yield
    first = collector.config.getoption("--share").startswith("0/")
    if report.outcome == "failed" and first and report.nodeid not in _done:
        text = str(report.longrepr)[-SHOWN:]
        _note(collector.config, report.nodeid, "failed", 0, text)
    return report


def _report(config, report):
    if report.outcome == "passed" and report.when != "call":
        return
    text = ""
    if report.outcome != "passed":
        crash = getattr(report.longrepr, "reprcrash", None)
        text = f"{crash.message}\n" if crash else ""
        text = (text + str(report.longrepr)[-SHOWN:])[: 2 * SHOWN]
    _note(config, report.nodeid, report.outcome, report.duration, text)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item):
    torch = sys.modules.get("torch")
    if not torch or not torch.cuda.is_initialized():
        return
    try:
        torch.cuda.synchronize()
    except Exception as why:
        _note(item.config, item.nodeid, "fault", 0, str(why)[:SHOWN])
        os._exit(FAULT)
