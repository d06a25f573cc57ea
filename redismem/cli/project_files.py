"""`redismem project export` and `import`: a project as four files, and back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from redismem.cli.place import HOW_TO_NAME_REDIS, opened
from redismem.cli.project import Name, looking_at
from redismem.cli.terminal import Namespace, Stop, Url, complain, one_line, plural, printable
from redismem.project.files.json import entries_of, project_of
from redismem.project.project import Project

Folder = Annotated[Path, Parameter(help="Where the four files are.")]


async def export(name: Name, folder: Folder, *, url: Url = None, namespace: Namespace = "default") -> int:
    """Write decisions.json, tasks.json, entities.json and conversations.json, with every version.

    Files that are there are replaced once all is read and written beside them. A project with nothing in it is not
    exported, and the exit code is 1.
    """
    async with looking_at(name, url, namespace) as (project, place):
        files = await project.export_files()
    where = f"project {name}, namespace {namespace} on {place.name}"
    entries = {file: list(entries_of(file, text)) for file, text in files.items()}
    if not any(entries.values()):
        raise Stop(f"there is nothing in {where}; no file was written")
    _write(folder, files)
    print(f"{plural(sum(map(len, entries.values())), 'item')} of {where}, written to {printable(str(folder))}:")
    print(", ".join(f"{file} {len(found):,}" for file, found in entries.items()))
    talks = entries["conversations.json"]
    if gone := sum(talk.get("messages") == [] and talk.get("message_count", 0) > 0 for talk in talks):
        print(f"without the messages of {plural(gone, 'conversation')}: they have gone with their sessions")
    return 0


def _write(folder: Path, files: Mapping[str, str]) -> None:
    """None of the files if there is no room for all. Raises Stop."""
    beside = {folder / file: folder / f".{file}.new" for file in files}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            for (_, new), text in zip(beside.items(), files.values(), strict=True):
                new.write_text(text, "utf-8")
            for file, new in beside.items():
                new.replace(file)
        finally:
            for new in beside.values():
                new.unlink(missing_ok=True)
    except OSError as cause:
        raise Stop(f"{folder} is not a folder that can be written to: {type(cause).__name__}", 2) from None


async def import_(
    name: Name,
    folder: Folder,
    *,
    replace: Annotated[bool, Parameter(negative=(), show_default=False, help="In the place of what is there.")] = False,
    url: Url = None,
    namespace: Namespace = "default",
) -> int:
    """Read what `export` wrote, all of it or nothing: into what is there, or in its place.

    `--replace` takes all four files of one export, with an item at least: what is there and not in them is erased.
    """
    names = [file for file in Project.FILES if (folder / file).is_file()]
    if not names:
        raise Stop(f"there is none of {', '.join(Project.FILES)} in this folder", 2)
    try:
        files = {file: (folder / file).read_text("utf-8") for file in names}
    except (OSError, UnicodeDecodeError) as cause:
        raise Stop(f"the files cannot be read: {type(cause).__name__}") from None
    async with opened(url, namespace) as (memory, place):
        if place.embedded:
            raise Stop(f"an import needs a store that outlives this command: {HOW_TO_NAME_REDIS}", 2)
        did = await memory.project(name).import_files(files, replace=replace)
    print(
        f"{did.added} added, {did.lengthened} replaced, {did.unchanged} as they were, {did.erased} erased "
        f"in project {name}, namespace {namespace} on {place.name}"
    )
    for other in sorted({found for text in files.values() if (found := project_of(text)) not in (None, name)}):
        complain(f"note: this was an export of project {one_line(other, 60)}, not of {name}")
    return 0
