"""The words that pages explain."""

from dp_ensemble_env.reporting.glossary import MARKED, anchor, definitions, link_terms


def test_every_marked_word_is_in_the_glossary():
    assert set(MARKED.values()) <= set(definitions())
    assert all(
        "{term}" not in meaning and len(meaning) > 20 for meaning in definitions().values() if "See" not in meaning
    )


def test_words_are_linked_whole_and_where_wanted():
    linked = link_terms("Scores and ε at k = 5; a scoreboard, 300 K, policy-free.", lambda term: True)
    assert linked.count("<a ") == 3
    for word, term in (("Scores", "score"), ("ε", "epsilon"), ("k", "concentration")):
        assert f'<a class="term" href="#{anchor(term)}">{word}</a>' in linked
    assert link_terms("score", lambda term: False) == "score"
