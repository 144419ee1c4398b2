"""Chats: messages become a prompt by the model's own template, and its answer a message."""

from paged_attention.engine.serve.answer import Answer
from paged_attention.engine.serve.completions import Completions
from paged_attention.engine.serve.errors import ApiError
from paged_attention.engine.serve.request_body import read_chat
from paged_attention.engine.serve.scored_tokens import chat_form


class Chats(Completions):
    """The next message of a chat, as a whole or as a stream of server-sent events."""

    id, kind, kind_of_piece = "chatcmpl", "chat.completion", "chat.completion.chunk"
    parameter = "messages"
    read, form = staticmethod(read_chat), staticmethod(chat_form)

    def tokens_of(self, prompt, name: str) -> list[int]:
        """prompt: the messages."""
        try:
            return self.serving.words.encode_chat(prompt)
        except ValueError as error:
            raise ApiError(400, str(error), self.parameter) from None

    def choice(self, index: int, answer: Answer) -> dict:
        message = {"role": "assistant", "content": answer.text, "refusal": None}
        return {"index": index, "message": message} | self.ended(answer)

    def piece(self, index: int, answer: Answer, text: str, is_first: bool) -> dict:
        role = {"role": "assistant"} if is_first else {}
        return {"index": index, "delta": role | {"content": text}} | self.ended(answer)
