"""The page of a study, read back from a real browser."""

import re
import shutil
import subprocess
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from autotune.cli import run_command
from autotune.figures import shown_usd
from autotune.records import Objective, Scores, Source, TrialState, WorkTime
from autotune.report.page import draw_report
from autotune.store.sql import SqlStore
from tests.autotune.prices.books import A100, make_trial_on_gpu
from tests.factories import MIB, make_key, make_study_record, make_trial
from trials.measurement import Outcome

CHROMIUM = shutil.which("chromium")
NAME = "<script>x"
PROBE = """<script>
window.onload = () => setTimeout(() => {
  const wide = [...document.querySelectorAll("body *")]
    .filter((e) => e.getBoundingClientRect().right > innerWidth + 1).length;
  const points = [...document.querySelectorAll(".plot")]
    .map((plot) => plot.querySelectorAll(".point").length).join(",");
  document.title = `wide=${wide} points=${points} errors=${window.errors} width=${innerWidth}`;
}, 500);
</script>"""
COUNT = "<script>errors = 0; addEventListener('error', () => errors++)</script>"


@pytest.fixture
def page(tmp_path, monkeypatch):
    monkeypatch.setenv("AUTOTUNE_STORE", str(tmp_path / "studies.db"))
    store = SqlStore.open(str(tmp_path / "studies.db"))
    store.create_study(make_study_record(name=NAME, environment=A100))
    for number, seconds in enumerate((4.5, 6.75)):
        made = make_trial_on_gpu(number, study=NAME, device_gib=60 - number * 50, seconds=seconds)
        leased = make_trial(number, study=NAME, config=made.config)
        store.open_trial(leased)
        store.record_measurement(leased, make_key(leased), 600 * MIB, made.measurement)
        scores = Scores(
            cost_usd_per_million_samples=3.0 - number,
            throughput_samples_per_second=made.measurement.timing.samples_per_second,
            quality=2.5,
        )
        store.tell_trial(leased, scores, -0.5)
    store.close()
    assert run_command(["report", NAME, "--to", str(tmp_path / "report.html")]) == 0
    return tmp_path / "report.html"


def test_names_are_text_and_nothing_is_fetched(page):
    text = page.read_text()
    assert "<h1>Study &lt;script&gt;x</h1>" in text
    assert NAME not in text
    assert not re.search(r'<(script|link|img)[^>]+(src|href)="http', text)


def test_a_title_in_a_picture_is_escaped_once(page):
    text = page.read_text()
    assert "Cheapest config of &lt;script&gt;x</text>" in text
    assert "&amp;lt;" not in text


def test_a_study_of_predictions_alone_is_drawn_without_prices():
    told = make_trial(
        0,
        state=TrialState.TOLD,
        source=Source.PREDICTED,
        outcome=Outcome.COMPLETED,
        scores=Scores(cost_usd_per_million_samples=1.0, throughput_samples_per_second=2.0),
        violation=-0.5,
    )
    assert told.is_feasible and not told.is_measured
    record = make_study_record()
    spec = replace(record.spec, objectives=(Objective.COST, Objective.THROUGHPUT))
    record = replace(record, spec=spec)
    text = draw_report(record, [told], datetime.now(UTC))
    assert "none has a price" in text


def test_savings_come_with_their_interval_and_the_search_with_its_price(tmp_path):
    record = make_study_record(environment=A100, worked=WorkTime(device_seconds=7200.0))
    cheap, dear = (
        make_trial_on_gpu(number, device_gib=10, seconds=seconds)
        for number, seconds in ((0, 2.0), (1, 4.0))
    )
    scored = [
        replace(
            trial,
            scores=Scores(
                cost_usd_per_million_samples=cost,
                cost_half_width=0.01,
                throughput_samples_per_second=1 / cost,
                throughput_half_width=0.001,
            ),
        )
        for trial, cost in ((cheap, 1.0), (dear, 2.0))
    ]
    spec = replace(
        record.spec,
        objectives=(Objective.COST, Objective.THROUGHPUT),
        baseline=scored[1].config,
    )
    text = draw_report(replace(record, spec=spec), scored, datetime.now(UTC))
    assert "money 50.0% less (95 % interval " in text
    usd = 2 * record.spec.rates.device_usd_per_hour
    assert f"{shown_usd(usd)} at the device rate of" in text


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium in PATH")
@pytest.mark.parametrize("width", [390, 1280])
def test_every_trial_is_drawn_and_nothing_is_wider_than_the_screen(page, tmp_path, width):
    text = page.read_text().replace("<head>", f"<head>{COUNT}", 1)
    page.with_name("page.html").write_text(
        text.replace("</body></html>", f"{PROBE}</body></html>")
    )
    # Headless windows are no narrower than 500 pixels; a frame is.
    (tmp_path / "frame.html").write_text(
        f'<iframe src="page.html" style="width:{width}px;height:900px;border:0"></iframe>'
        "<script>setInterval(() => {document.title = frames[0].document.title}, 100)</script>"
    )
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    command += ["--allow-file-access-from-files", "--virtual-time-budget=8000"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", f"file://{tmp_path / 'frame.html'}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert f"<title>wide=0 points=2,2,2 errors=0 width={width}</title>" in done.stdout
