"""The source distribution is the whole project, and what is built from it is the same byte for byte."""

import re
import shutil
import tarfile
from email.parser import BytesParser
from pathlib import Path

import pytest

import xdevice

ADDRESS = "https://example.org/owner/name"


def unpacked(sdist, folder):
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (project,) = folder.iterdir()
    return project


def page_of(metadata):
    return metadata.get_payload(decode=True).decode()


def test_it_has_every_file_of_the_project_and_nothing_else(sdist, project_files, tmp_path):
    project = unpacked(sdist, tmp_path)
    files = {path.relative_to(project).as_posix() for path in project.rglob("*") if path.is_file()}
    made = {
        "PKG-INFO",
        "setup.cfg",
        *(name for name in files if name.startswith("xdevice_tensors.egg-info/")),
    }
    assert files - made == set(project_files) - made


@pytest.mark.weekly
def test_both_archives_are_the_same_from_another_folder_at_another_time(
    built, sdist, wheel, tmp_path
):
    project = unpacked(sdist, tmp_path)
    for file in filter(Path.is_file, project.rglob("*")):
        file.chmod(file.stat().st_mode | 0o020)
        file.touch()
    assert built("sdist", project).read_bytes() == sdist.read_bytes()
    assert built("wheel", project).read_bytes() == wheel.read_bytes()


@pytest.fixture(scope="module")
def published(source, tmp_path_factory, new_python):
    """The wheel's metadata, where the project knows the repository's address."""
    out = tmp_path_factory.mktemp("metadata")
    project = shutil.copytree(source, tmp_path_factory.mktemp("published") / "project")
    with (project / "pyproject.toml").open("a", encoding="utf-8") as file:
        file.write(f'\n[project.urls]\nRepository = "{ADDRESS}"\n')
    code = "import sys; from setuptools.build_meta import *; prepare_metadata_for_build_wheel(sys.argv[1])"
    done = new_python("-c", code, out, cwd=project)
    assert done.returncode == 0, done.stdout + done.stderr
    (metadata,) = out.glob("*.dist-info/METADATA")
    return BytesParser().parsebytes(metadata.read_bytes())


def test_links_and_pictures_of_the_index_page_lead_into_the_repository(published, project_files):
    page, tag = page_of(published), f"v{xdevice.__version__}"
    links = re.findall(r"(!?)\[[^\]]*\]\(([^)#]+)", page)
    assert any(picture for picture, _ in links)
    assert len(links) > 10
    for picture, target in links:
        kind = "raw" if picture else "blob"
        assert target.removeprefix(
            f"{ADDRESS}/{kind}/{tag}/"
        ) in project_files or target.startswith("https:")
    assert f"({ADDRESS}/raw/{tag}/docs/pictures/frameworks.svg)" in page
    assert f"({ADDRESS}/blob/{tag}/docs/use/virtual.md)" in page
    assert published["Project-URL"] == f"Repository, {ADDRESS}"


def test_the_index_page_is_the_readme(published, project_files):
    page = re.sub(
        rf"{ADDRESS}/(raw|blob)/v{re.escape(xdevice.__version__)}/", "", page_of(published)
    )
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    assert page.strip() == readme.strip()
    assert published["Description-Content-Type"] == "text/markdown"
