"""The working directory of a tab: what is copied, and what is a link."""

import pytest

from xdevice.tools.course import run


def test_the_largest_files_are_links_if_there_is_too_much_to_copy(tmp_path, monkeypatch):
    chapter = tmp_path / "book" / "chapter.md"
    chapter.parent.mkdir()
    sizes = {"a.csv": 10, "b.csv": 70, "c.csv": 20}
    for name, size in sizes.items():
        (chapter.parent / name).write_bytes(bytes(size))
    assert run.layout_of(chapter).shared() == []
    monkeypatch.setattr(run, "MOST_BYTES", 50)
    assert [each.name for each in run.layout_of(chapter).shared()] == ["b.csv"]
    working = run.layout_of(chapter).make(tmp_path / "scratch")
    links = {each.name for each in working.iterdir() if each.is_symlink()}
    assert links == {"b.csv"}
    assert {each.name: each.stat().st_size for each in working.iterdir()} == sizes


def test_a_chapter_in_the_folder_of_temporary_files_is_laid_out(tmp_path):
    chapter = tmp_path / "chapter.md"
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path)
    chapter.write_text("")
    working = run.layout_of(chapter).make(tmp_path / "xdevice-1" / "files")
    assert (working / "chapter.md").is_file()
    assert (working / ".hidden").is_symlink()
    assert (working / "loop").is_symlink()


@pytest.mark.parametrize("mark", ["pyvenv.cfg", "conda-meta/history"])
def test_an_environment_in_the_folder_is_a_link_and_is_not_named(tmp_path, mark):
    chapter = tmp_path / "book" / "chapter.md"
    environment = chapter.parent / "env"
    (environment / mark).parent.mkdir(parents=True)
    (environment / mark).write_text("")
    (environment / "module.py").write_text("")
    chapter.write_text("")
    layout = run.layout_of(chapter)
    assert layout.shared() == []
    assert (layout.make(tmp_path / "scratch") / "env").is_symlink()
