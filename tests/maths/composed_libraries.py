"""Which functions of SciPy and scikit-learn compute with a framework's tensors: `compose`.

``python composed_libraries.py tensorflow gpu:1`` calls each function with tensors there, and
compares the result with that of NumPy arrays: its numbers, its framework, its device. A wrong
result is printed, and an error at the end. The last line is that of the table in
docs/tensors/maths.md. ``--all`` prints what each function that raised an error said.
"""

from __future__ import annotations

import ast
import os
import re
import sys
import warnings
from collections import Counter
from importlib import import_module

os.environ["SCIPY_ARRAY_API"] = "1"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
warnings.simplefilter("ignore")

import numpy as np  # noqa: E402
import sklearn  # noqa: E402

import xdevice  # noqa: E402
from xdevice.framework.ownership import tensor_owner  # noqa: E402

rng = np.random.default_rng(0)
v, a, b = rng.normal(size=12), rng.normal(size=(12, 4)), rng.normal(size=(12, 4))
ARRAYS = {
    "v": v,
    "w": rng.normal(size=12) + v,
    "positive": np.abs(v) + 0.1,
    "unit": 1 / (1 + np.exp(-rng.normal(size=12))),
    "ordered": np.sort(v),
    "long": rng.normal(size=64),
    "window": np.array([0.25, 0.5, 0.25]),
    "a": a,
    "b": b,
    "start": b[:3],
    "positives": np.abs(a) + 0.1,
    "square": a.T @ a,
    "image": rng.normal(size=(8, 8)),
    "n": rng.integers(0, 3, 12),
    "m": rng.integers(0, 3, 12),
    "flags": (v > 0).astype("int64"),
    "quaternion": np.array([0.0, 0.0, 1.0, 1.0]),
}

# the functions of a module, with the same arguments: names of arrays, and literals
FUNCTIONS = """
scipy.special: log_ndtr ndtr erf erfc i0 i0e i1 i1e expit log_expit logsumexp softmax log_softmax sinc exp2 cbrt | v
scipy.special: entr gammaln gamma digamma | positive
scipy.special: logit ndtri erfinv | unit
scipy.special: xlogy rel_entr kl_div chdtr chdtrc betaln beta | positive positive
scipy.special: gammainc gammaincc stdtr binom poch boxcox jv | positive positive
scipy.special: betainc | positive positive unit
scipy.special: polygamma | n positive
scipy.stats: zscore skew kurtosis describe sem variation circmean circvar circstd iqr tmean tvar tstd tsem tmin | v
scipy.stats: tmax kstatvar median_abs_deviation differential_entropy rankdata sigmaclip lmoment | v
scipy.stats: normaltest skewtest kurtosistest jarque_bera wilcoxon | v
scipy.stats: gmean hmean gzscore entropy power_divergence chisquare | positive
scipy.stats: pmean | positive 2.0
scipy.stats: moment kstat | v 2
scipy.stats: ttest_1samp trim_mean expectile | v 0.1
scipy.stats: mode | n
scipy.stats: quantile | v unit
scipy.stats: combine_pvalues | unit
scipy.stats: boxcox_llf yeojohnson_llf | 0.5 positive
scipy.stats: pearsonr ttest_ind ttest_rel f_oneway ks_2samp mannwhitneyu spearmanrho kendalltau levene bartlett | v w
scipy.stats: fligner alexandergovern linregress brunnermunzel ansari mood zmap wasserstein_distance | v w
scipy.stats: chatterjeexi siegelslopes theilslopes energy_distance | v w
scipy.stats: zscore directional_stats | a
scipy.fft: fft ifft rfft irfft hfft dct dst fftshift | v
scipy.fft: fftn fft2 dctn | a
scipy.signal: detrend hilbert wiener medfilt envelope czt sawtooth square gausspulse | v
scipy.signal: fftconvolve convolve correlate oaconvolve | v window
scipy.signal: resample | v 8
scipy.signal: periodogram | long
scipy.signal: csd coherence | long long
scipy.signal: savgol_filter | v 5 2
scipy.signal: decimate | long 2
scipy.signal: lfilter filtfilt | window window long
scipy.signal: freqz | window
scipy.signal: upfirdn | window v 2
scipy.cluster.vq: whiten | a
scipy.cluster.vq: vq py_vq | a b
scipy.cluster.vq: kmeans | a start
scipy.cluster.hierarchy: linkage | a
scipy.ndimage: gaussian_filter uniform_filter median_filter maximum_filter | image 3
scipy.ndimage: rotate shift zoom | image 2
scipy.ndimage: sobel laplace prewitt center_of_mass sum distance_transform_edt | image
scipy.integrate: trapezoid | v ordered
scipy.integrate: simpson cumulative_simpson cumulative_trapezoid | v
scipy.linalg: inv expm svdvals norm det logm | square
scipy.linalg: solve | square square
scipy.spatial.distance: cdist | a b
scipy.spatial.distance: pdist | a
scipy.spatial.transform.Rotation: from_quat | quaternion
scipy.constants: convert_temperature | v 'C' 'K'
sklearn.metrics: accuracy_score zero_one_loss balanced_accuracy_score cohen_kappa_score confusion_matrix | n m
sklearn.metrics: hamming_loss matthews_corrcoef multilabel_confusion_matrix adjusted_rand_score | n m
sklearn.metrics: f1_score precision_score recall_score jaccard_score | n m average='macro'
sklearn.metrics: mean_squared_error mean_absolute_error r2_score max_error explained_variance_score | v w
sklearn.metrics: root_mean_squared_error mean_pinball_loss median_absolute_error d2_absolute_error_score | v w
sklearn.metrics: mean_absolute_percentage_error mean_squared_log_error mean_gamma_deviance | positive unit
sklearn.metrics: mean_poisson_deviance mean_tweedie_deviance root_mean_squared_log_error | positive unit
sklearn.metrics: roc_auc_score brier_score_loss log_loss roc_curve precision_recall_curve det_curve | flags unit
sklearn.metrics: average_precision_score d2_brier_score | flags unit
sklearn.metrics: auc | ordered v
sklearn.metrics: silhouette_score calinski_harabasz_score | a n
sklearn.metrics.pairwise: cosine_similarity euclidean_distances rbf_kernel polynomial_kernel linear_kernel | a
sklearn.metrics.pairwise: sigmoid_kernel laplacian_kernel cosine_distances pairwise_distances pairwise_kernels | a
sklearn.metrics.pairwise: manhattan_distances | a
sklearn.metrics.pairwise: chi2_kernel additive_chi2_kernel | positives
sklearn.metrics.pairwise: paired_cosine_distances paired_euclidean_distances | a b
sklearn.model_selection: train_test_split | a random_state=0
"""

# estimators: fitted, and then used on the first array
ESTIMATORS = """
sklearn.preprocessing: StandardScaler() MinMaxScaler() MaxAbsScaler() Normalizer() Binarizer() | a
sklearn.preprocessing: PolynomialFeatures() RobustScaler() FunctionTransformer() | a
sklearn.preprocessing: QuantileTransformer(n_quantiles=5) | a
sklearn.preprocessing: KernelCenterer() | square
sklearn.preprocessing: LabelBinarizer() LabelEncoder() | n
sklearn.decomposition: PCA(2,svd_solver='full') PCA(2,svd_solver='covariance_eigh') PCA(2,whiten=True) | a
sklearn.decomposition: PCA(2,svd_solver='randomized',random_state=0) | a
sklearn.kernel_approximation: Nystroem(n_components=4,random_state=0) | a
sklearn.mixture: GaussianMixture(2,random_state=0,init_params='random') | a
sklearn.cluster: KMeans(2,random_state=0,n_init=1) | a
sklearn.discriminant_analysis: LinearDiscriminantAnalysis() | a n
sklearn.naive_bayes: GaussianNB() | a n
sklearn.linear_model: Ridge(solver='svd') RidgeCV() LinearRegression() | a v
sklearn.linear_model: RidgeClassifier(solver='svd') RidgeClassifierCV() LogisticRegression() | a n
sklearn.linear_model: LogisticRegression(solver='newton-cholesky') | a n
sklearn.linear_model: PoissonRegressor() | a positive
"""


def rows(table):
    for line in table.strip().splitlines():
        module, _, rest = line.partition(": ")
        names, _, arguments = rest.partition(" | ")
        for name in names.split():
            yield module, name, arguments.split()


def arguments_of(words, arrays):
    args, options = [], {}
    for word in words:
        option = re.fullmatch(r"(\w+)=(.*)", word)
        if option:
            options[option[1]] = ast.literal_eval(option[2])
        else:
            args.append(arrays[word] if word in arrays else ast.literal_eval(word))
    return args, options


def function_of(module, name):
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError:
        outer, _, cls = module.rpartition(".")
        return getattr(getattr(import_module(outer), cls), name)


def calls():
    """A name, and a function of the arrays and of what calls the library."""
    for module, name, words in rows(FUNCTIONS):

        def call(arrays, through, module=module, name=name, words=words):
            args, options = arguments_of(words, arrays)
            result = through(function_of(module, name))(*args, **options)
            return result.as_matrix() if name == "from_quat" else result

        yield f"{module}.{name}", call
    for module, source, words in rows(ESTIMATORS):

        def fitted(arrays, through, module=module, source=source, words=words):
            args, _ = arguments_of(words, arrays)
            estimator = through(eval(source, vars(import_module(module))))
            fitted = estimator.fit(*args)
            used = fitted.transform if hasattr(fitted, "transform") else fitted.predict
            return used(args[0])

        yield f"{module}.{source}", fitted


def leaves(result):
    if isinstance(result, dict):
        result = [result[key] for key in sorted(result)]
    for name in ("statistic", "mean_direction"):
        if hasattr(result, name):
            result = [getattr(result, name)]
    is_several = isinstance(result, (tuple, list)) or type(result).__name__ == "Composed"
    if is_several:
        return [leaf for part in result for leaf in leaves(part)]
    return [result]


WITH_FREE_SIGNS = {"sklearn.discriminant_analysis.LinearDiscriminantAnalysis()"}
"""What scikit-learn computes with singular vectors, whose signs it leaves as they come."""


def fault(result, expected, backend, device, has_free_signs):
    """What is wrong with a result; an empty text if nothing is."""
    found, wanted = leaves(result), leaves(expected)
    if len(found) != len(wanted):
        return f"{len(found)} results, not {len(wanted)}"
    for mine, theirs in zip(found, wanted, strict=True):
        numbers = mine
        if not isinstance(mine, (int, float, complex, np.generic, type(None))):
            if tensor_owner(mine) != backend:
                return f"a {type(mine)}"
            if xdevice.device_of(mine) != device:
                return f"a tensor on {xdevice.device_of(mine)}"
            numbers = xdevice.to_numpy(mine)
        if theirs is None:
            continue
        if np.shape(numbers) != np.shape(theirs):
            return f"the shape {np.shape(numbers)}, not {np.shape(theirs)}"
        expected_numbers = theirs
        if has_free_signs:
            numbers, expected_numbers = (np.sign(part[:1]) * part for part in (numbers, theirs))
        is_single = "32" in str(getattr(numbers, "dtype", ""))
        tolerance = 1e-3 if is_single else 1e-7
        if not np.allclose(numbers, expected_numbers, tolerance, tolerance, equal_nan=True):
            return f"{numbers}, not {theirs}"
    return ""


def other_dtype(result, expected):
    """The dtypes of the first array whose dtype is not NumPy's; an empty text if there is none."""
    for mine, theirs in zip(leaves(result), leaves(expected), strict=True):
        if tensor_owner(mine) is None or not np.shape(theirs):
            continue
        dtype = xdevice.to_numpy(mine).dtype
        if dtype != theirs.dtype:
            return f"{dtype}, not {theirs.dtype}"
    return ""


def main(backend, place, *options):
    if place != "cpu":
        xdevice.virtual_gpus(2)
    xdevice.use(backend)
    device = xdevice.as_device(place)
    sklearn.set_config(array_api_dispatch=True)
    counts = {"scipy": Counter(), "sklearn": Counter()}
    faults, dtypes = {}, {}
    for name, call in calls():
        expected = call({key: numbers.copy() for key, numbers in ARRAYS.items()}, lambda f: f)
        tensors = {
            key: xdevice.tensor(numbers, dtype=str(numbers.dtype), device=device)
            for key, numbers in ARRAYS.items()
        }
        count = counts[name.partition(".")[0]]
        count["all"] += 1
        try:
            result = call(tensors, xdevice.compose)
        except Exception as error:
            if "--all" in options:
                print(f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:200]}")
            continue
        faults[name] = fault(result, expected, backend, device, name in WITH_FREE_SIGNS)
        count["right"] += not faults[name]
        if not faults[name]:
            dtypes[name] = other_dtype(result, expected)
    for name, reason in faults.items():
        if reason:
            print(f"{name} is wrong: {reason}")
    for name, reason in dtypes.items():
        if reason:
            print(f"{name} has another dtype: {reason}")
    figures = [f"{count['right']} of {count['all']}" for count in counts.values()]
    print(f"| {backend} | {place} | {' | '.join(figures)} |")
    return any(faults.values())


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
