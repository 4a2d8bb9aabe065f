"""The spellings of devices in all frameworks: which kind and index a string means."""

import re

from xdevice.errors import DeviceSpellingError, did_you_mean, shortened

MAX_INDEX = 2**31 - 1  # the largest index: DLPack's ``device_id`` is a signed 32-bit integer
_MAKERS_WORDS = frozenset({"cuda", "rocm", "hip", "mps", "metal", "xpu"})  # for a GPU
_GPU_WORDS = _MAKERS_WORDS | {"vgpu"}  # a virtual GPU, where PyTorch or PaddlePaddle names it
COMMON = frozenset({"cpu", "gpu", "tpu"})  # words that mean the same in every framework
_FRAMEWORK_WORDS = frozenset({"meta"})  # not misspelt: it is not "metal"

# The kind, and not a word that stands around it, as in ``Place(gpu:1)``, ``/task:0/gpu:1`` and
# ``TFRT_CPU_0``. array-api-strict's words end in digits.
_WORD = (
    r"(?P<kind>(?!(?:place|job|replica|task|device)\b|tfrt_)(?P<letters>[a-z]+(?:_[a-z]+)*)[0-9]*)"
)
_INDEX = r"(?P<index>0|[1-9][0-9]*)"
_JOB = r"(?:(?:/job:[a-z0-9_]+)?(?:/replica:\d+)?(?:/task:\d+)?/)?"
_SPELLINGS = [
    # gpu:1, cuda:1, /GPU:1, /device:GPU:1,
    # /job:localhost/replica:0/task:0/device:GPU:1
    rf"{_JOB}(?:device:)?{_WORD}(?::{_INDEX})?",
    rf"{_WORD}\({_INDEX}?\)",  # gpu(1), cpu()
    rf"place\({_WORD}(?::{_INDEX})?\)",  # Place(gpu:1)
    rf"device\(type='{_WORD}'(?:, index={_INDEX})?\)",  # device(type='cuda', index=1)
    rf"tfrt_{_WORD}_{_INDEX}",  # TFRT_CPU_0
    rf"{_WORD}device\(id={_INDEX}(?:, [^()]*(?:\([^()]*\)[^()]*)*)?\)",  # CudaDevice(id=1)
]
_PATTERNS = [re.compile(spelling, re.IGNORECASE | re.ASCII) for spelling in _SPELLINGS]


def kind_and_index(spelling: str) -> tuple[str, int]:
    """The kind and the index, by the first of `_SPELLINGS` that fits.

    A kind that resembles a common word is misspelt, whoever has written it: a framework cannot
    have devices ``igpu``.
    """
    matches = (pattern.fullmatch(spelling) for pattern in _PATTERNS)
    match = next(filter(None, matches), None)
    if match is None:
        examples = "'cpu', 'gpu', 'gpu:1' or any framework's spelling of these"
        raise DeviceSpellingError(f"{shortened(spelling)} is not a device; write {examples}")
    glued = match["kind"].removeprefix(match["letters"])  # as in "gpu1"; other words end in digits
    if glued and common_word(match["letters"]) in COMMON:
        meant = f"{match['letters']}:{glued}"
        raise DeviceSpellingError(f"{shortened(spelling)} is not a device; did you mean {meant!r}?")
    digits = match["index"] or "0"
    if len(digits) > 10 or int(digits) > MAX_INDEX:
        raise DeviceSpellingError(too_large(f"the index of {shortened(spelling)}"))
    kind = common_word(match["kind"])
    hint = _similar_word(kind)
    if hint:
        raise DeviceSpellingError(f"{shortened(spelling)} names an unknown kind of device; {hint}")
    return kind, int(digits)


def common_word(word: str) -> str:
    """The word in lower case; ``gpu`` for each maker's word."""
    word = word.lower()
    return "gpu" if word in _GPU_WORDS else word


def _similar_word(kind: str) -> str:
    """A hint for a kind that is like a common word, and so misspelt; else empty."""
    letters = kind.rstrip("0123456789")
    if kind in COMMON or kind in _FRAMEWORK_WORDS or len(letters) < 3:
        return ""
    return did_you_mean(letters, sorted(COMMON | _MAKERS_WORDS), "", least=0.75)


def too_large(index: str) -> str:
    limit = f"{MAX_INDEX}, the largest that a device can have"
    return f"{index} is over {limit}; write gpu(0), gpu(1), …"
