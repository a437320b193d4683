"""Checks of types and shapes at every call, at a third of what jaxtyping's import hook takes.

jaxtyping's decorator binds the signature at every call and checks arguments twice, once alone and once with the result;
the suite spent most of its time there. This one lets beartype check arguments and result once, in one scope of shapes.
"""

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any, get_type_hints

import jaxtyping
from beartype.roar import BeartypeCallHintViolation

whole = jaxtyping.jaxtyped


def resolved(annotation: Any, function: types.FunctionType) -> Any:
    """Return an annotation whose names are known; `Any` for a name that only type checkers import."""

    def one(value: Any) -> None: ...

    one.__annotations__ = {"value": annotation}
    try:
        return get_type_hints(one, function.__globals__, include_extras=True)["value"]
    except Exception:
        return Any


def has_shapes(annotation: Any) -> bool:
    """Whether there is an array type of jaxtyping in an annotation."""
    if inspect.isclass(annotation) and issubclass(annotation, jaxtyping.AbstractArray):
        return True
    return any(has_shapes(part) for part in getattr(annotation, "__args__", ()))


def checked(function: types.FunctionType, typechecker: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return the function with checks of what it takes and returns."""
    annotations = {name: resolved(each, function) for name, each in function.__annotations__.items()}
    copy = types.FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__, copy.__qualname__, copy.__module__, copy.__annotations__ = (
        function.__kwdefaults__,
        function.__qualname__,
        function.__module__,
        annotations,
    )
    with_checks = typechecker(copy)
    if with_checks is copy:
        return function
    in_scope = any(map(has_shapes, annotations.values()))

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if jaxtyping.config.jaxtyping_disable:
            return function(*args, **kwargs)
        try:
            if not in_scope:
                return with_checks(*args, **kwargs)
            with whole("context"):
                return with_checks(*args, **kwargs)
        except BeartypeCallHintViolation as error:
            raise jaxtyping.TypeCheckError(str(error)) from error

    return wrapped


def jaxtyped(*, typechecker: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Decorate what jaxtyping's import hook finds: functions here, dataclasses and generators as jaxtyping does."""

    def decorate(found: Any) -> Any:
        if isinstance(found, types.FunctionType) and not inspect.isgeneratorfunction(found):
            return checked(found, typechecker)
        return whole(found, typechecker=typechecker)

    return decorate


def install() -> None:
    """Let the import hook, which looks the decorator up in every module, find this one."""
    jaxtyping.jaxtyped = jaxtyped
