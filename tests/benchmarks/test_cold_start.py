from benchmarks import cold_start


def test_every_command_is_timed_in_every_round(monkeypatch):
    monkeypatch.setattr(
        cold_start,
        "COMMANDS",
        {"python": ["-c", "pass"], "help": cold_start.COMMANDS["sift --help"]},
    )
    monkeypatch.setattr(cold_start, "SLOW", {"help"})
    times = cold_start.measure(2)
    assert {name: len(found) for name, found in times.items()} == {"python": 8, "help": 2}
    assert min(times["help"] + times["python"]) > 0
