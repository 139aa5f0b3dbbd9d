// The part of cuBLASLt (libcublasLt.so) that the runtime calls: matrix products with strided batches, and what they do
// at their end.
// check.cpp compares it with NVIDIA's headers where they are installed.
#pragma once
#include "runtime/engine/device/cuda/api/driver.h"

namespace cleave::runtime::cuda {

struct MatmulAlgorithm { // cublasLtMatmulAlgo_t
  uint64_t data[8];
};
struct MatmulHeuristic { // cublasLtMatmulHeuristicResult_t
  MatmulAlgorithm algorithm;
  size_t workspaceBytes;
  int state;
  float waves;
  int reserved[4];
};
using BlasHandle = struct BlasContext *;
using MatmulDescription = struct MatmulDescriptionData *;
using MatrixLayout = struct MatrixLayoutData *;
using MatmulPreference = struct MatmulPreferenceData *;

enum : int {
  computeF32 = 68,            // CUBLAS_COMPUTE_32F
  computeF64 = 70,            // CUBLAS_COMPUTE_64F
  computeTf32 = 77,           // CUBLAS_COMPUTE_32F_FAST_TF32
  realF32 = 0,                // CUDA_R_32F
  realF64 = 1,                // CUDA_R_64F
  realF16 = 2,                // CUDA_R_16F
  realBf16 = 14,              // CUDA_R_16BF
  realF8E4M3 = 28,            // CUDA_R_8F_E4M3
  realF8E5M2 = 29,            // CUDA_R_8F_E5M2
  operationN = 0,             // CUBLAS_OP_N
  operationT = 1,             // CUBLAS_OP_T
  matmulTransA = 3,           // CUBLASLT_MATMUL_DESC_TRANSA
  matmulTransB = 4,           // CUBLASLT_MATMUL_DESC_TRANSB
  matmulEpilogue = 7,         // CUBLASLT_MATMUL_DESC_EPILOGUE
  matmulBiasPointer = 8,      // CUBLASLT_MATMUL_DESC_BIAS_POINTER
  matmulAuxPointer = 11,      // CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER
  matmulAuxLeading = 12,      // CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD
  matmulBiasType = 26,        // CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE
  epilogueBias = 4,           // CUBLASLT_EPILOGUE_BIAS
  epilogueGelu = 32,          // CUBLASLT_EPILOGUE_GELU; of GELU_BIAS: with epilogueBias
  epilogueAux = 128,          // of CUBLASLT_EPILOGUE_GELU_AUX and its like
  epilogueGeluGradient = 192, // CUBLASLT_EPILOGUE_DGELU
  epilogueSumA = 256,         // CUBLASLT_EPILOGUE_BGRADA
  epilogueSumB = 512,         // CUBLASLT_EPILOGUE_BGRADB
  layoutBatchCount = 5,       // CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT
  layoutBatchStride = 6,      // CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET
  preferenceWorkspace = 1,    // CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
  preferenceAlignmentA = 5,   // CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES
  preferenceAlignmentB = 6,
  preferenceAlignmentC = 7,
  preferenceAlignmentD = 8,
  blasInvalidValue = 7,  // CUBLAS_STATUS_INVALID_VALUE
  blasNotSupported = 15, // CUBLAS_STATUS_NOT_SUPPORTED
};

// FUNCTION(member, symbol, parameters); all return cublasStatus_t.
#define CLEAVE_CUBLAS_LT_FUNCTIONS(FUNCTION)                                                                           \
  FUNCTION(create, cublasLtCreate, (BlasHandle * handle))                                                              \
  FUNCTION(destroy, cublasLtDestroy, (BlasHandle handle))                                                              \
  FUNCTION(descriptionCreate, cublasLtMatmulDescCreate,                                                                \
           (MatmulDescription * description, int computeType, int scaleType))                                          \
  FUNCTION(descriptionDestroy, cublasLtMatmulDescDestroy, (MatmulDescription description))                             \
  FUNCTION(descriptionSet, cublasLtMatmulDescSetAttribute,                                                             \
           (MatmulDescription description, int attribute, const void *value, size_t bytes))                            \
  FUNCTION(layoutCreate, cublasLtMatrixLayoutCreate,                                                                   \
           (MatrixLayout * layout, int type, uint64_t rows, uint64_t columns, int64_t leading))                        \
  FUNCTION(layoutDestroy, cublasLtMatrixLayoutDestroy, (MatrixLayout layout))                                          \
  FUNCTION(layoutSet, cublasLtMatrixLayoutSetAttribute,                                                                \
           (MatrixLayout layout, int attribute, const void *value, size_t bytes))                                      \
  FUNCTION(preferenceCreate, cublasLtMatmulPreferenceCreate, (MatmulPreference * preference))                          \
  FUNCTION(preferenceDestroy, cublasLtMatmulPreferenceDestroy, (MatmulPreference preference))                          \
  FUNCTION(preferenceSet, cublasLtMatmulPreferenceSetAttribute,                                                        \
           (MatmulPreference preference, int attribute, const void *value, size_t bytes))                              \
  FUNCTION(heuristic, cublasLtMatmulAlgoGetHeuristic,                                                                  \
           (BlasHandle handle, MatmulDescription description, MatrixLayout a, MatrixLayout b, MatrixLayout c,          \
            MatrixLayout d, MatmulPreference preference, int requested, MatmulHeuristic *results, int *returned))      \
  FUNCTION(check, cublasLtMatmulAlgoCheck,                                                                             \
           (BlasHandle handle, MatmulDescription description, MatrixLayout a, MatrixLayout b, MatrixLayout c,          \
            MatrixLayout d, const MatmulAlgorithm *algorithm, MatmulHeuristic *result))                                \
  FUNCTION(matmul, cublasLtMatmul,                                                                                     \
           (BlasHandle handle, MatmulDescription description, const void *alpha, const void *aData, MatrixLayout a,    \
            const void *bData, MatrixLayout b, const void *beta, const void *cData, MatrixLayout c, void *dData,       \
            MatrixLayout d, const MatmulAlgorithm *algorithm, void *workspace, size_t workspaceBytes, Stream stream))

struct CublasLt {
#define CLEAVE_MEMBER(member, symbol, parameters) int(*member) parameters = nullptr;
  CLEAVE_CUBLAS_LT_FUNCTIONS(CLEAVE_MEMBER)
#undef CLEAVE_MEMBER
  const char *(*statusString)(int status) = nullptr; // cublasLtGetStatusString
  size_t (*version)() = nullptr;                     // cublasLtGetVersion
};

} // namespace cleave::runtime::cuda
