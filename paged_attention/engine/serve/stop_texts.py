"""What a stream sends next (lesson 11)."""


def next_event(
    text: str, num_sent: int, stop: list[str], reason: str | None
) -> tuple[str, str | None]:
    """Says what a stream sends next.

    A stop text ends the answer. Nothing of it is sent, and nothing after it. So if the text
    ends with what may be the beginning of a stop text, that is held back until it is known. An
    incomplete character is held back too, and so is any beginning of a stop text before it.

    text: all text so far, decoded from all tokens. At its end there may be one or more
        "\\ufffd", as long as a character has not all of its tokens.
    num_sent: how many of its characters were sent before.
    stop: the stop texts; none of them is empty. The first one that is whole ends the answer.
        Of several that have become whole at once, it is the one that begins first.
    reason: why the request has ended, "length" or "stop", or None while it goes on. If it has
        ended, nothing is held back.
    Returns the text to send now, and the finish reason or None.
    """
    # BEGIN SOLUTION 11.2
    begins = [text.index(each) for each in stop if each in text]
    if begins:
        return text[num_sent : min(begins)], "stop"
    if reason is not None:
        return text[num_sent:], reason
    complete = text.rstrip("\ufffd")
    held = 0
    for each in stop:
        for length in range(1, len(each)):
            if complete.endswith(each[:length]):
                held = max(held, length)
    return complete[num_sent : len(complete) - held], None
    # END SOLUTION
