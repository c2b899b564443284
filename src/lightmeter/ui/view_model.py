"""`ViewModel`: the Python object behind each widget. It has the widget's state, and methods that the page calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import traitlets
from pydantic import ValidationError, validate_call
from pydantic_core import to_jsonable_python

from lightmeter.errors import LightmeterError

F = TypeVar("F", bound=Callable[..., Any])

_REQUEST: Final = "_lightmeter_request"

MAX_ERROR_CHARACTERS: Final = 2_000
"""The text of an error is cut after this number of characters. It can be long if it quotes what the page sent."""


def request(method: F) -> F:
    """Decorate a method of a `ViewModel` so that the page may call it; pydantic checks the arguments by their types."""
    checked: Any = validate_call(config={"arbitrary_types_allowed": True})(method)
    setattr(checked, _REQUEST, True)
    result: F = checked
    return result


class ViewModel(traitlets.HasTraits):
    """The Python object behind one widget, in a notebook or on the page of `lightmeter ui`.

    Its traits (observable attributes of traitlets) tagged `sync=True` are the state that the page shows. The page may
    change only the traits that are also tagged `page_writes=True`. The page can call the methods marked with `request`,
    and gets their results as JSON. Requests of one page arrive one after another, but not always in the same thread.

    Attributes:
        error: The error of the most recent request as a sentence; empty if that request succeeded.
    """

    error = traitlets.Unicode("").tag(sync=True)

    _send_to_page: Callable[[dict[str, Any]], None] | None = None

    def connect(self, send_to_page: Callable[[dict[str, Any]], None]) -> None:
        """Set the function that sends each event and each reply to the page. Its argument is a JSON-compatible dict.

        The function must allow calls from any thread.
        """
        self._send_to_page = send_to_page

    def emit(self, event: str, value: Any) -> None:
        """Send an event, such as a finished thumbnail, to the page. Do nothing if no page is connected.

        The message is `{"event": event, "value": value}`. `event` is the name of the event. `value` is its content,
        which is converted to JSON.
        """
        if self._send_to_page is not None:
            self._send_to_page({"event": event, "value": to_jsonable_python(value, inf_nan_mode="null")})

    def on_message(self, message: Any) -> None:
        """Process a message of the page, `{"id": …, "method": …, "params": {…}}`, and send the reply.

        The reply is `{"id": …, "result": …}` or `{"id": …, "error": {"message": …, "hint": …}}`. A message without `id`
        or `method` is ignored.
        """
        if not (isinstance(message, dict) and {"id", "method"} <= message.keys()):
            return
        try:
            result = self._call(str(message["method"]), message.get("params") or {})
            reply = {"result": to_jsonable_python(result, inf_nan_mode="null")}
            self.error = ""
        except Exception as error:  # noqa: BLE001 (the page must show any error)
            self.error, hint = error_text(error), getattr(error, "hint", "")
            reply = {"error": {"message": self.error, "hint": hint}}
        if self._send_to_page is not None:
            self._send_to_page({"id": message["id"], **reply})

    def _call(self, method: str, params: dict[str, Any]) -> Any:
        function = getattr(type(self), method, None)
        if not getattr(function, _REQUEST, False):
            raise AttributeError(f"the page asks for an unknown method {method!r}")
        return getattr(self, method)(**params)

    def close_view(self) -> None:
        """Do nothing. A subclass overrides this to stop its background work; it is called when the page is closed."""

    def page_state(self, names: Iterable[str] | None = None) -> dict[str, Any]:
        """Return name → value of the traits `names`, as a JSON-compatible object.

        If `names` is None, return all traits that the page shows.
        """
        shown = self.traits(sync=True) if names is None else names
        return {name: to_jsonable_python(getattr(self, name), inf_nan_mode="null") for name in shown}

    def set_from_page(self, changes: dict[str, Any]) -> None:
        """Set traits to the values that the page sent.

        Raises:
            traitlets.TraitError: The page may not change one of these traits, or a value has the wrong type.
        """
        for name in changes:
            if not self.has_trait(name) or not self.trait_metadata(name, "page_writes"):
                raise traitlets.TraitError(f"the page may not set {name!r}")
        with self.hold_trait_notifications():
            for name, value in changes.items():
                setattr(self, name, value)


def error_text(error: BaseException) -> str:
    """Return the text of an error for the user, cut to `MAX_ERROR_CHARACTERS`.

    If the error is neither a `LightmeterError` nor a `ValidationError`, the text begins with the name of its class.
    """
    if isinstance(error, ValidationError):
        text = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
    else:
        text = str(error) if isinstance(error, LightmeterError) else f"{type(error).__name__}: {error}"
    text = text.encode(errors="replace").decode()  # (half a surrogate pair in JSON is no text)
    return text if len(text) <= MAX_ERROR_CHARACTERS else f"{text[:MAX_ERROR_CHARACTERS]}…"
