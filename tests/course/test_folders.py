"""The working directory of a tab: what is copied, and what is a link."""

from xdevice.tools.course import folders


def test_the_largest_files_are_links_if_there_is_too_much_to_copy(tmp_path, monkeypatch):
    chapter = tmp_path / "book" / "chapter.md"
    chapter.parent.mkdir()
    sizes = {"a.csv": 10, "b.csv": 70, "c.csv": 20}
    for name, size in sizes.items():
        (chapter.parent / name).write_bytes(bytes(size))
    assert folders.shared_with(chapter) == []
    monkeypatch.setattr(folders, "MOST_BYTES", 50)
    assert [each.name for each in folders.shared_with(chapter)] == ["b.csv"]
    working = folders.lay_out(chapter, tmp_path / "scratch")
    links = {each.name for each in working.iterdir() if each.is_symlink()}
    assert links == {"b.csv"}
    assert {each.name: each.stat().st_size for each in working.iterdir()} == sizes


def test_a_chapter_in_the_folder_of_temporary_files_is_laid_out(tmp_path):
    chapter = tmp_path / "chapter.md"
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path)
    chapter.write_text("")
    working = folders.lay_out(chapter, tmp_path / "xdevice-1" / "files")
    assert (working / "chapter.md").is_file()
    assert (working / ".hidden").is_symlink()
    assert (working / "loop").is_symlink()
    assert (working / "xdevice-1").is_symlink()
