"""Errors that a client gets, in OpenAI's form."""


class ApiError(Exception):
    """An error with its HTTP status.

    parameter: the name of the argument that is wrong, if it is one.
    code: a short word for programs.
    """

    def __init__(self, status: int, message: str, parameter: str | None = None, code=None):
        super().__init__(message)
        self.status, self.message, self.parameter, self.code = status, message, parameter, code

    def body(self) -> dict:
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        if self.status == 429:
            kind = "rate_limit_error"
        error = {"message": self.message, "type": kind, "param": self.parameter}
        return {"error": error | {"code": self.code}}
