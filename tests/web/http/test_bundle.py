"""Modules joined into one: their order, their exports, and the forms that are refused."""

from __future__ import annotations

import pytest

from redismem.web.http.bundle import join_modules

APP = """// Begins.
import { one, Two } from "./numbers.js";
import { tell } from "./tell.js";

tell(one);
export function begin() {}
"""
NUMBERS = """import {
  tell,
} from "./tell.js";

export const one = 1;
export class Two {}
export async function three() {}
export async function* four() {}
const hidden = tell;
"""
TELL = "export const tell = (text) => text;\n"


def test_each_module_runs_once_after_those_that_it_imports() -> None:
    joined = join_modules({"app": APP, "numbers": NUMBERS, "tell": TELL, "unused": "throw 1;"}, "app")
    assert joined == (
        "const $tell = (() => {\nconst tell = (text) => text;\n\nreturn { tell };\n})();\n"
        "const $numbers = (() => {\nconst {\n  tell,\n} = $tell;\n\nconst one = 1;\nclass Two {}\n"
        "async function three() {}\nasync function* four() {}\nconst hidden = tell;\n\n"
        "return { one, Two, three, four };\n})();\n"
        "const $app = (() => {\nconst { one, Two } = $numbers;\nconst { tell } = $tell;\n\n"
        "tell(one);\nfunction begin() {}\n\nreturn { begin };\n})();\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        'import * as all from "./tell.js";',
        'import { tell as say } from "./tell.js";',
        'import "./tell.js";',
        'import { tell } from "https://elsewhere/tell.js";',
        "export default 1;",
        "export { tell };",
        "export let count = 0;",
        'const later = import("./tell.js");',
    ],
)
def test_another_form_of_import_or_export_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="cannot be joined"):
        join_modules({"app": text, "tell": TELL}, "app")


def test_a_circle_and_a_missing_module_are_refused() -> None:
    circle = {"app": 'import { b } from "./b.js";', "b": 'import { a } from "./app.js";'}
    with pytest.raises(ValueError, match="in a circle: app, b"):
        join_modules(circle, "app")
    with pytest.raises(KeyError):
        join_modules({"app": 'import { b } from "./b.js";'}, "app")
