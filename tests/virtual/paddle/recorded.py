"""Random numbers that real GPUs were recorded drawing under PaddlePaddle, with their sources.

    xdevice emulate --gpus 1 --model v100 recorded.py [--large]

prints what virtual GPUs draw instead, as JSON; `test_recorded.py` compares them. The rows that are `large` have tensors
of up to 200 million elements.
"""

import json
import sys
from typing import NamedTuple


class Recorded(NamedTuple):
    seed: int
    draws: tuple[
        tuple[str, str], ...
    ]  # expressions, one after another, and the numbers as they were printed
    source: str
    gpu: str
    large: bool = False


TESTS = "PaddlePaddle/Paddle: test/legacy_test"

ROWS = [
    Recorded(
        100,
        (
            (
                "(lambda v: paddle.stack([v[1] + 2 * v[3], 3 * v[2], 4 * v[0] + 5 * v[1]]))(paddle.randn([4]))",
                "-3.85499096 -2.42975140 -1.75087738",
            ),
        ),
        "PaddlePaddle/Paddle: the documentation of paddle.sparse.mv",
        "unknown",
    ),
    Recorded(
        2021,
        (
            (
                "three_tens(paddle.randperm(30000, dtype='int32'))",
                (
                    "24562 8409 9379 10328 20503 18059 9681 21883 11783 27413 29477 27100 9643 16637 8605 "
                    "16892 27767 2724 1612 13096 298 4104 16479 22714 28684 7510 14667 9950 15940 28343"
                ),
            ),
            (
                "three_tens(paddle.randperm(30000, dtype='int64'))",
                (
                    "6587 1909 5525 23001 6488 14981 14355 3083 29561 8171 23460 12394 22501 5427 20185 9100 "
                    "5127 1651 25806 4818 5829 4508 16193 24836 8526 242 9984 9243 1977 11839"
                ),
            ),
            (
                "three_tens(paddle.randperm(30000, dtype='float32'))",
                (
                    "5154 10537 14362 29843 27185 28399 27561 4144 22906 10705 1958 18414 20090 21910 22746 "
                    "27346 22347 3002 4564 26991 25580 12606 553 16387 29536 4241 20946 16899 16339 4662"
                ),
            ),
            (
                "three_tens(paddle.randperm(30000, dtype='float64'))",
                (
                    "19051 2449 21940 11121 282 7330 13747 24321 21147 9163 15483 1315 5723 20954 13251 25539 "
                    "5074 1823 14945 17624 10516 2552 29970 5941 986 8007 24805 26753 12202 21404"
                ),
            ),
        ),
        f"{TESTS}/test_randperm_op.py",
        "V100 and A100",
    ),
    Recorded(
        2021,
        (
            (
                "paddle.poisson(paddle.full([20], 10.0))",
                "13 13 11 8 12 6 9 15 16 6 13 12 9 15 17 8 11 16 11 10",
            ),
            (
                "paddle.poisson(paddle.full([120], 5.0))[100:]",
                "4 5 2 9 8 7 4 7 4 7 6 3 10 7 5 7 2 5 5 6",
            ),
        ),
        f"{TESTS}/test_poisson_op.py",
        "unknown",
    ),
    Recorded(
        2021,
        (
            (
                "paddle.empty([10]).exponential_(1.0)",
                (
                    ".80073667 .2249291 .07734892 1.25392 .14013891 .45736602 1.9735607 .30490234 .57100505 "
                    ".8115938"
                ),
            ),
        ),
        f"{TESTS}/test_exponential_op.py",
        "V100",
    ),
    Recorded(
        2021,
        (
            (
                "paddle.rand([32, 3, 1024, 1024], dtype='float64')[2, 1, 512, 1000:1010]",
                (
                    "0.55298901 0.65184678 0.49375412 0.57943639 0.16459608 0.67181056 0.03021481 0.0238559 "
                    "0.07742096 0.55972187"
                ),
            ),
            (
                "paddle.rand([32, 3, 1024, 1024], dtype='float32')[2, 1, 512, 1000:1010]",
                (
                    "0.45320973 0.17582087 0.725341 0.30849215 0.622257 0.46352342 0.97228295 0.12771158 "
                    "0.286525 0.9810645"
                ),
            ),
            (
                "paddle.empty([16, 16, 16, 16]).uniform_(-50, 100)[10, 10, 10, 0:10]",
                (
                    "30.089634 77.05225 3.1201615 68.34072 59.266724 -25.33281 12.973292 27.41127 -17.412298 "
                    "27.931019"
                ),
            ),
        ),
        f"{TESTS}/test_uniform_random_op.py",
        "V100",
        large=True,
    ),
    Recorded(
        2021,
        (
            (
                "paddle.randn([32, 3, 1024, 1024], dtype='float64')[2, 1, 512, 1000:1010]",
                (
                    "-0.79037829 -0.54411126 -0.32266671 0.35791815 1.44169267 -0.87785644 -1.23909874 "
                    "-2.18194139 0.49489656 0.40703062"
                ),
            ),
            (
                "paddle.randn([32, 3, 1024, 1024], dtype='float32')[2, 1, 512, 1000:1010]",
                (
                    "-0.7988942 1.8644791 0.02782744 1.3692524 0.6419724 0.12436751 0.12058455 -1.9984808 "
                    "1.5635862 0.18506318"
                ),
            ),
        ),
        f"{TESTS}/test_gaussian_random_op.py",
        "V100",
        large=True,
    ),
    Recorded(
        100,
        (
            (
                "three_fives(paddle.randint(-10000, 10000, [32, 3, 1024, 1024], dtype='int32'))",
                "2535 2109 5916 -5011 -261 3465 7206 -8660 -9628 -6574 881 1560 1100 9664 1669",
            ),
            (
                "three_fives(paddle.randint(-10000, 10000, [32, 3, 1024, 1024], dtype='int64'))",
                "7213 -9597 754 8129 -1158 -7159 8054 7675 6980 8506 3581 3420 -8027 -5237 -2436",
            ),
        ),
        f"{TESTS}/test_randint_op.py",
        "V100",
        large=True,
    ),
    Recorded(
        100,
        (
            (
                "paddle.nn.functional.dropout(paddle.rand([32, 1024, 1024]), 0.25)[10, 100, 500:510]",
                (
                    "0.6914956 0.5294584 0.19032137 0.6996228 0.3338527 0.8442094 0.96965003 1.1726775 0.0 "
                    "0.28037727"
                ),
            ),
            (
                "paddle.nn.functional.dropout(paddle.rand([32, 1024, 1024], dtype='float64'))[20, 100, 500:510]",
                "1.28587354 0.15563703 0.0 0.28799703 0.0 0.0 0.0 0.54964 0.51355682 0.33818988",
            ),
            (
                "counts(paddle.nn.functional.dropout(paddle.ones([32, 1024, 1024], dtype='float16'), 0.75))",
                "130086900 4291190105 4292243807 0 0 0 0 0 0 0 0 4 4",
            ),
        ),
        f"{TESTS}/test_dropout_op.py",
        "V100",
        large=True,
    ),
    Recorded(
        2021,
        (
            (
                "five_tens(paddle.empty([64, 3, 1024, 1024]).exponential_(1.0))",
                (
                    ".80073667 .2249291 .07734892 1.25392 .14013891 .45736602 1.9735607 .30490234 .57100505 "
                    ".8115938 1.4296371 .95411777 .52575850 .24805880 .00012322118 .84604341 .21111444 "
                    "1.4143821 .28194717 1.1360573 1.3448033 .35146526 1.7380928 .32012638 .10396296 "
                    ".51344526 .15308502 .18712929 .03888268 .20771872 .5107464 .20970327 2.1986802 1.580056 "
                    ".31036147 .43966478 .9056133 .30119267 1.4797124 1.4319834 3.4640615 1.1019983 .41195083 "
                    ".22681557 .291846 .53617656 1.5791925 2.4645927 .04094889 .9057725"
                ),
            ),
            (
                "paddle.empty([10, 10]).exponential_(3.0)[5]",
                (
                    ".02831675 .1691551 .6798956 .69347525 .0243443 .22180498 .30574575 .9839696 .2834912 "
                    ".59420055"
                ),
            ),
            (
                "paddle.empty([16, 2, 1024, 768], dtype='float64').exponential_(0.25)[0, 0, 0, 100:110]",
                (
                    "10.0541229 12.67860643 1.09850734 7.35289643 2.65471225 3.86217432 2.97902086 2.92744479 "
                    "2.67927152 0.19667352"
                ),
            ),
        ),
        f"{TESTS}/test_exponential_op.py",
        "V100",
        large=True,
    ),
    Recorded(
        100,
        (
            (
                (
                    "counts(paddle.bernoulli(paddle.to_tensor(np.random.RandomState(100).rand(32, 102"
                    "4, 1024))), 16, 500)"
                ),
                "260028995 8582429431 8581445798 0 0 0 0 0 0 0 1 1 1",
            ),
            (
                (
                    "counts(paddle.bernoulli(paddle.to_tensor(np.random.RandomState(100).rand(32, 102"
                    "4, 1024).astype('float32'))), 16, 500)"
                ),
                "260092343 8583509076 8582778540 0 0 1 1 1 1 0 1 1 1",
            ),
        ),
        f"{TESTS}/test_bernoulli_op.py",
        "unknown",
        large=True,
    ),
    Recorded(
        100,
        (
            (
                "(lambda x: [x, paddle.multinomial(x, 1)][1])(weights())[100:110, 0]",
                "9982 1655 4741 1323 9319 3298 6473 7477 2507 2628",
            ),
            (
                "paddle.multinomial(WEIGHTS[0], 5000)[100, 1000:1010]",
                "7300 6055 8714 5401 7360 161 5035 7002 6788 2916",
            ),
            (
                "paddle.multinomial(WEIGHTS[0], 5000)[300, 3000:3010]",
                "5700 6567 4399 5688 7472 545 6894 526 2124 385",
            ),
            (
                "paddle.multinomial(WEIGHTS[0], 20000, replacement=True)[100, 0:10]",
                "7630 8235 8445 3275 5580 4591 1331 342 1662 7156",
            ),
            (
                "paddle.multinomial(WEIGHTS[0], 20000, replacement=True)[100, 0:10]",
                "4159 7849 9305 5759 4422 122 345 2897 5200 5911",
            ),
        ),
        f"{TESTS}/test_multinomial_op.py",
        "V100",
        large=True,
    ),
]

WEIGHTS = []


def drawn(row: Recorded) -> list[list[float]]:
    import numpy as np
    import paddle

    def three_tens(x):
        return paddle.concat([x[i : i + 10] for i in (0, 10000, 20000)])

    def three_fives(x):
        parts = (10, 0, 100, 100), (20, 1, 600, 600), (30, 2, 1000, 1000)
        return paddle.concat([x[i, j, k, n : n + 5] for i, j, k, n in parts])

    def five_tens(x):
        parts = (0, 0, 0, 0), (16, 1, 300, 200), (32, 1, 600, 500), (48, 2, 900, 800)
        return paddle.concat(
            [x[i, j, k, n : n + 10] for i, j, k, n in (*parts, (63, 2, 1023, 1000))]
        )

    def counts(x, i=0, j=100):
        """The sums of the indices of what is not 0, and ten elements."""
        values = x.numpy()
        sums = [int(indices.sum()) for indices in np.nonzero(values)]
        return np.array([*sums, *values[i, j, 500:510]], np.float64)

    def weights():
        WEIGHTS[:] = [paddle.randint(0, 100, [1024, 10000]).astype("float32")]
        return WEIGHTS[0]

    names = dict(locals(), WEIGHTS=WEIGHTS)
    paddle.seed(row.seed)
    results = [eval(draw, names) for draw, _ in row.draws]
    return [np.asarray(result, np.float64).reshape(-1).tolist() for result in results]


if __name__ == "__main__":
    large = "--large" in sys.argv
    print(json.dumps([drawn(row) for row in ROWS if row.large == large]))
