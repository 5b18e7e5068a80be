"""What a plan leaves: OpenADR 3.1 objects that obey the schema, and a page."""

from __future__ import annotations

import re
from datetime import datetime

import numpy as np

from dp_ensemble_env.dispatch.plan import make_plan
from dp_ensemble_env.dispatch.report import openadr, write_plan

DURATION = r"^(-?)P(?=\d|T\d)(?:(\d+)Y)?(?:(\d+)M)?(?:(\d+)([DW]))?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?$"


def check_objects(content, kind, units):
    program = content["program"]
    assert 1 <= len(program["programName"]) <= 128
    for period in (one["intervalPeriod"] for one in (program, *content["events"])):
        assert datetime.fromisoformat(period["start"]).tzinfo is not None
        assert re.match(DURATION, period["duration"])
    for event in content["events"]:
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", event["programID"])
        assert all(1 <= len(target) <= 128 for target in event["targets"])
        (descriptor,) = event["payloadDescriptors"]
        assert descriptor["objectType"] == "EVENT_PAYLOAD_DESCRIPTOR"
        assert (descriptor["payloadType"], descriptor["units"]) == (kind, units)
        assert [interval["id"] for interval in event["intervals"]] == list(range(len(event["intervals"])))
        for interval in event["intervals"]:
            (payload,) = interval["payloads"]
            assert payload["type"] == kind and len(payload["values"]) == 1
            assert isinstance(payload["values"][0], float)


def test_objects_obey_the_schema(plan):
    content = openadr(plan, "setpoint", "America/New_York")
    check_objects(content, "DISPATCH_SETPOINT", "KW")
    assert [event["targets"] for event in content["events"]] == [[course.name] for course in plan.participants]
    first = content["events"][0]
    assert first["intervalPeriod"] == {"start": "2018-08-15T11:00:00-04:00", "duration": "PT1H"}
    sent = [interval["payloads"][0]["values"][0] for interval in first["intervals"]]
    course = plan.participants[0]
    np.testing.assert_allclose(sent, course.setpoint[course.in_event], atol=1e-3)
    prices = openadr(plan, "price")
    check_objects(prices, "PRICE", "KWH")
    (event,) = prices["events"]
    assert event["payloadDescriptors"][0]["currency"] == "USD"
    assert [interval["payloads"][0]["values"][0] for interval in event["intervals"]] == [1.137] * 4


def test_the_page_shows_fifty_of_many(days, tmp_path):
    name, day = next(iter(days.items()))
    many = make_plan({f"{name} {number}": day for number in range(60)})
    page = write_plan(tmp_path, many, signal="price", zones={}, command="").read_text(encoding="utf-8")
    assert len(page) < 300_000 and "The first 50 of 60 " in page and f"{name} 49" in page
    assert f"{name} 50" not in page and f"{name} 59" in (tmp_path / "dispatch.csv").read_text()
