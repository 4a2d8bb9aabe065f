"""Operations that have a kernel for the CPU and none for GPUs.

From ``kernels.get_all_registered_kernels()`` of TensorFlow's wheel with CUDA, 2.21.0 for Linux: those without a kernel
for ``GPU`` or ``DEFAULT`` that take and give plain tensors. The script is ``tests/virtual/kernels_tensorflow.py``.
"""

_TEXT = """
    AsString AudioSpectrogram BandedTriangularSolve CTCBeamSearchDecoder CTCGreedyDecoder CTCLoss
    CholeskyGrad CombinedNonMaxSuppression ComputeAccidentalHits DecodeAndCropJpeg DecodeBase64 DecodeBmp DecodeCSV
    DecodeCompressed DecodeGif DecodeImage DecodeJSONExample DecodeJpeg DecodeJxl DecodePaddedRaw DecodePng
    DecodeProtoV2 DecodeRaw DecodeWav DecodeWebP DenseCountSparseOutput DenseToDenseSetOperation
    DenseToSparseSetOperation DeserializeManySparse DrawBoundingBoxes DrawBoundingBoxesV2 EditDistance Eig
    EncodeBase64 EncodeJpeg EncodeJpegVariableQuality EncodePng EncodeProto EncodeWav ExtractGlimpse
    ExtractGlimpseV2 ExtractJpegShape Fingerprint FractionalAvgPool FractionalAvgPoolGrad FractionalMaxPool
    FractionalMaxPoolGrad FusedPadConv2D FusedResizeAndPadConv2D GenerateVocabRemapping InTopK IsotonicRegression
    ListDiff LoadAndRemapMatrix MatrixExponential MatrixLogarithm MatrixSolveLs MatrixSquareRoot Mfcc
    NearestNeighbors NonDeterministicInts NonMaxSuppression NonMaxSuppressionV5 NonMaxSuppressionWithOverlaps
    NthElement ParseExample ParseExampleV2 ParseSequenceExample ParseSequenceExampleV2 ParseSingleExample
    ParseSingleSequenceExample ParseTensor RaggedBincount RaggedCountSparseOutput RaggedCross RaggedGather
    RaggedRange RaggedTensorToSparse RaggedTensorToTensor RandomCrop RandomGamma RandomIndexShuffle RandomPoisson
    RandomPoissonV2 RandomShuffle ReduceJoin RegexFullMatch RegexReplace ResizeArea ResizeBicubic ResizeBicubicGrad
    SampleDistortedBoundingBox SampleDistortedBoundingBoxV2 ScaleAndTranslate ScaleAndTranslateGrad SelfAdjointEig
    SerializeManySparse SerializeSparse SerializeTensor SetSize SobolSample SparseAdd SparseAddGrad SparseBincount
    SparseCountSparseOutput SparseCross SparseCrossHashed SparseCrossV2 SparseDenseCwiseAdd SparseDenseCwiseDiv
    SparseDenseCwiseMul SparseMatMul SparseReduceMax SparseReduceMaxSparse SparseReduceSum SparseReduceSumSparse
    SparseSoftmax SparseSparseMaximum SparseSparseMinimum SparseTensorDenseAdd SparseToSparseSetOperation
    StatelessParameterizedTruncatedNormal StatelessRandomBinomial StatelessRandomPoisson
    StatelessSampleDistortedBoundingBox StatelessShuffle StaticRegexFullMatch StaticRegexReplace StringFormat
    StringJoin StringLength StringLower StringNGrams StringSplit StringSplitV2 StringStrip StringToHashBucket
    StringToHashBucketFast StringToHashBucketStrong StringToNumber StringUpper Substr Timestamp ToBool UnicodeDecode
    UnicodeDecodeWithOffsets UnicodeEncode UnicodeScript UnicodeTranscode UniqueV2 UniqueWithCountsV2 UnravelIndex
    UnsortedSegmentJoin
"""
NAMES = frozenset(_TEXT.split())
