"""`redismem project export` and `import`: write a project to four JSON files and read it back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import mkstemp
from typing import Annotated

from cyclopts import Parameter

from redismem.cli.options import Namespace, Target, Url, Yes, flag
from redismem.cli.place import HOW_TO_NAME_REDIS, open_memory
from redismem.cli.project import Name, open_project
from redismem.cli.streams import complain
from redismem.cli.terminal import Stop, ask, one_line
from redismem.inspection.figures import plural, printable
from redismem.project.files.json import entries_of, project_of
from redismem.project.project import Project

Folder = Annotated[Path, Parameter(help="The folder of the four files.")]


async def export(
    name: Name, folder: Folder, /, *, yes: Yes = False, url: Url = None, namespace: Namespace = "default"
) -> int:
    """Write decisions.json, tasks.json, entities.json and conversations.json, with every version.

    Only their owner can read the files, and a folder that the command creates.
    Existing files are replaced only after all new ones are written, and a confirmation; without a terminal this needs
    `--yes`. An empty project is not exported: exit code 1.
    """
    async with open_project(name, Target(url, namespace)) as (project, place):
        files = await project.export_files()
    where = f"project {name}, namespace {namespace} on {place.name}"
    entries = {file: list(entries_of(file, text)) for file, text in files.items()}
    if not any(entries.values()):
        raise Stop(f"{where} is empty; no file was written")
    if any((folder / file).exists() for file in files):
        ask(f"Replace the files of an export in {printable(str(folder))}?", yes=yes)
    _write(folder, files)
    print(f"{plural(sum(map(len, entries.values())), 'item')} of {where}, written to {printable(str(folder))}:")
    print(", ".join(f"{file} {len(items):,}" for file, items in entries.items()))
    talks = entries["conversations.json"]
    if gone := sum(talk.get("messages") == [] and talk.get("message_count", 0) > 0 for talk in talks):
        print(f"without the messages of {plural(gone, 'conversation')}: the sessions no longer exist")
    return 0


def _write(folder: Path, files: Mapping[str, str]) -> None:
    """Write all files, or none if one cannot be written. Only their owner may read them, and links are not followed.

    Raises:
        Stop: if a file cannot be written.
    """
    beside: dict[Path, Path] = {}
    try:
        _make_private(folder)
        if any(place.is_dir() and not place.is_symlink() for place in map(folder.joinpath, files)):
            raise IsADirectoryError  # before a first file is replaced
        try:
            for file, text in files.items():
                opened, path = mkstemp(prefix=f".{file}.", dir=folder)  # of mode 0600, and never a file that exists
                beside[folder / file] = Path(path)
                with open(opened, "w", encoding="utf-8") as new_file:
                    new_file.write(text)
            for place, new in beside.items():
                new.replace(place)
        finally:
            for new in beside.values():
                new.unlink(missing_ok=True)
    except OSError as cause:
        raise Stop(f"cannot write to the folder {folder}: {type(cause).__name__}", 2) from None


def _make_private(folder: Path) -> None:
    """Create a folder, and those that it lies in, for their owner alone."""
    for missing in (folder, *folder.parents)[::-1]:
        if not missing.is_dir():
            missing.mkdir(0o700)


async def import_(
    name: Name,
    folder: Folder,
    /,
    *,
    replace: Annotated[bool, flag("Replace the whole project.")] = False,
    yes: Yes = False,
    url: Url = None,
    namespace: Namespace = "default",
) -> int:
    """Import the files of an export, all or nothing: merge them into the project, or replace it.

    `--replace` needs all four files of one export, with at least one item; it erases whatever is not in them. It asks
    for confirmation first; without a terminal it needs `--yes`.
    """
    names = [file for file in Project.FILES if (folder / file).is_file()]
    if not names:
        raise Stop(f"the folder has none of the files {', '.join(Project.FILES)}", 2)
    try:
        files = {file: (folder / file).read_text("utf-8") for file in names}
    except (OSError, UnicodeDecodeError) as cause:
        raise Stop(f"cannot read the files: {type(cause).__name__}") from None
    async with open_memory(url, namespace) as (memory, place):
        if place.embedded:
            raise Stop(f"an import needs a store that outlives this command: {HOW_TO_NAME_REDIS}", 2)
        if replace:
            ask(f"Replace project {name} in namespace {namespace} on {place.name}?", yes=yes)
        report = await memory.project(name).import_files(files, replace=replace)
    print(
        f"{report.added} added, {report.lengthened} replaced, {report.unchanged} unchanged, {report.erased} erased "
        f"in project {name}, namespace {namespace} on {place.name}"
    )
    for other in sorted({owner for text in files.values() if (owner := project_of(text)) not in (None, name)}):
        complain(f"note: the files are an export of project {one_line(other, 60)}, not {name}")
    return 0
