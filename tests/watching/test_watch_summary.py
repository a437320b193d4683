from watched import KNOWN_95, header, moment, opinion, seen, three_moments

from mule.watching.moments import DecisionThreshold
from mule.watching.outputs.summary import (
    TABLE_TITLES,
    Span,
    summarise,
    summary_rows,
    summary_text,
    write_summary,
)


def test_of_nothing_there_is_a_summary_too():
    summary = summarise(header(), [])
    assert summary_rows(summary) == []
    assert "0 actors, 0 of them novel" in summary_text(summary)


def test_times_in_a_row_become_one_span():
    times = [0.0, 1.0, 2.0, 5.0, 6.0, 9.0]
    (actor,) = summarise(header(), [moment(time_s, seen(3)) for time_s in times]).actors
    assert actor.seen == [Span(0.0, 2.0), Span(5.0, 6.0), Span(9.0, 9.0)]
    assert (actor.num_looks, actor.num_novel, actor.novel) == (6, 0, [])


def test_novel_actors_come_first_and_every_look_is_counted():
    summary = summarise(header(), three_moments())
    assert [actor.track_id for actor in summary.actors] == [4, 0, 7]
    assert (summary.num_novel, summary.num_moments, summary.end_s) == (1, 3, 2.0)
    first = summary.actors[0]
    assert (first.num_looks, first.num_novel, first.most_novel_at_s) == (2, 2, 1.0)
    assert first.actions == {"sit": [Span(2.0, 2.0)]}


def test_the_text_says_who_did_what_when_and_what_novel_means(tmp_path):
    write_summary(tmp_path / "summary.txt", summarise(header(), three_moments()))
    text = (tmp_path / "summary.txt").read_text()
    for words in (
        "3 actors, 1 of them novel at some time.",
        "known-95: 95 % of known actors pass",
        "It is judged by all looks at an actor so far.",
        "  Actor 4, seen 0:01.0–0:02.0\n    novel 0:01.0–0:02.0 (2 of 2 looks), most at 0:01.0: only 1 in 100 known",
        "  Actor 0, seen 0:01.0–0:02.0\n    walk 0:01.0–0:02.0",
        "    known, but no action is probable enough to be named",
    ):
        assert words in text


def test_no_more_is_said_than_held_out_actors_show():
    for num_held_out, words in (
        (60, "fewer than 1 in 60 known actors look this strange"),
        (None, "more novel than 99 % of known actors"),
    ):
        usual = KNOWN_95.model_copy(update={"num_held_out": num_held_out})
        assert f": {words}\n" in summary_text(summarise(header(threshold=usual), three_moments()))


def test_another_score_is_called_by_its_name():
    by_belief = DecisionThreshold(name="half", score="belief", value=0.5, view="now", meaning="as told")
    top = header(threshold=by_belief)
    text = summary_text(summarise(top, [moment(0.0, seen(novelty=0.9, threshold=by_belief))]))
    assert (
        "Novel means that belief novelty is above 0.5 (half: as told).\nIt is judged by each look alone."
        in text
    )
    assert "belief novelty 0.810" in text


def test_rows_are_as_wide_as_their_titles_and_say_how_many_are_left_out():
    crowd = [moment(0.0, *(seen(number, actions=[opinion("walk", 9.0, 1.0)]) for number in range(30)))]
    rows = summary_rows(summarise(header(), crowd), most=5)
    assert {len(row) for row in rows} == {len(TABLE_TITLES)}
    assert len(rows) == 6
    assert rows[-1][0] == "and 25 more"


def test_long_names_are_cut():
    name = "a very long name " * 20
    text = summary_text(summarise(header([name]), [moment(0.0, seen(actions=[opinion(name, 9.0, 1.0)]))]))
    assert max(map(len, text.splitlines())) < 160
