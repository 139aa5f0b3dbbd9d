// Compiled only where NVIDIA's headers are: what api/ declares must be what they declare.
#include "runtime/engine/device/cuda/api/cublas_lt.h"
#include "runtime/engine/device/cuda/api/cudnn.h"
#include "runtime/engine/device/cuda/api/driver.h"
#include "runtime/engine/device/cuda/api/nccl.h"
#include <cublasLt.h>
#include <cuda.h>
#include <cudnn.h>
#include <nccl.h>
#include <type_traits>

namespace cleave::runtime::cuda {
namespace {

// Passed alike: both pointers, both integers or enums of one size, or structures of one size.
template <typename A, typename B> constexpr bool passedAlike() {
  if constexpr (std::is_pointer_v<A> || std::is_pointer_v<B>)
    return std::is_pointer_v<A> && std::is_pointer_v<B>;
  else if constexpr (std::is_class_v<A> || std::is_class_v<B>)
    return std::is_class_v<A> && std::is_class_v<B> && sizeof(A) == sizeof(B);
  else
    return sizeof(A) == sizeof(B) && std::is_floating_point_v<A> == std::is_floating_point_v<B>;
}
template <typename Ours, typename Theirs> struct CalledAlike : std::false_type {};
template <typename R, typename S, typename... A, typename... B>
  requires(sizeof...(A) == sizeof...(B))
struct CalledAlike<R (*)(A...), S (*)(B...)> : std::bool_constant<passedAlike<R, S>() && (passedAlike<A, B>() && ...)> {
};

#define CLEAVE_CHECK(table, member, symbol)                                                                            \
  static_assert(CalledAlike<decltype(table::member), decltype(&::symbol)>::value, #symbol " is declared otherwise");
#define CLEAVE_CHECK_DRIVER(member, symbol, parameters) CLEAVE_CHECK(Driver, member, symbol)
#define CLEAVE_CHECK_BLAS(member, symbol, parameters) CLEAVE_CHECK(CublasLt, member, symbol)
#define CLEAVE_CHECK_DNN(member, symbol, parameters) CLEAVE_CHECK(Cudnn, member, symbol)
#define CLEAVE_CHECK_NCCL(member, symbol, parameters) CLEAVE_CHECK(Nccl, member, symbol)
CLEAVE_DRIVER_FUNCTIONS(CLEAVE_CHECK_DRIVER)
CLEAVE_CUBLAS_LT_FUNCTIONS(CLEAVE_CHECK_BLAS)
CLEAVE_CUDNN_FUNCTIONS(CLEAVE_CHECK_DNN)
CLEAVE_NCCL_FUNCTIONS(CLEAVE_CHECK_NCCL)
CLEAVE_CHECK(CublasLt, statusString, cublasLtGetStatusString)
CLEAVE_CHECK(CublasLt, version, cublasLtGetVersion)
CLEAVE_CHECK(Cudnn, errorString, cudnnGetErrorString)
CLEAVE_CHECK(Cudnn, version, cudnnGetVersion)
CLEAVE_CHECK(Nccl, errorString, ncclGetErrorString)
CLEAVE_CHECK(Nccl, lastError, ncclGetLastError)

#define CLEAVE_SAME(ours, theirs) static_assert(static_cast<long>(ours) == static_cast<long>(theirs), #theirs);
CLEAVE_SAME(errorOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY)
CLEAVE_SAME(errorNotReady, CUDA_ERROR_NOT_READY)
CLEAVE_SAME(attributeMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
CLEAVE_SAME(attributeMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
CLEAVE_SAME(attributeVirtualMemory, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)
CLEAVE_SAME(attributeFileDescriptors, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)
CLEAVE_SAME(attributeDirectAccess, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED)
CLEAVE_SAME(attributePeakShared, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
CLEAVE_SAME(functionDynamicShared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
CLEAVE_SAME(handleFileDescriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
CLEAVE_SAME(allocationPinned, CU_MEM_ALLOCATION_TYPE_PINNED)
CLEAVE_SAME(locationDevice, CU_MEM_LOCATION_TYPE_DEVICE)
CLEAVE_SAME(accessReadWrite, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
CLEAVE_SAME(granularityRecommended, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
CLEAVE_SAME(memoryDevice, CU_MEMORYTYPE_DEVICE)
CLEAVE_SAME(streamNonBlocking, CU_STREAM_NON_BLOCKING)
CLEAVE_SAME(eventDisableTiming, CU_EVENT_DISABLE_TIMING)
CLEAVE_SAME(captureRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED)
CLEAVE_SAME(hostPortable, CU_MEMHOSTALLOC_PORTABLE)
CLEAVE_SAME(jitErrorLog, CU_JIT_ERROR_LOG_BUFFER)
CLEAVE_SAME(jitErrorLogBytes, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
static_assert(sizeof(Address) == sizeof(CUdeviceptr));
static_assert(sizeof(AllocationProperties) == sizeof(CUmemAllocationProp));
static_assert(offsetof(AllocationProperties, location) == offsetof(CUmemAllocationProp, location));
static_assert(sizeof(MemoryLocation) == sizeof(CUmemLocation));
static_assert(sizeof(AccessDescription) == sizeof(CUmemAccessDesc));
static_assert(offsetof(AccessDescription, flags) == offsetof(CUmemAccessDesc, flags));
static_assert(sizeof(Copy2d) == sizeof(CUDA_MEMCPY2D));
static_assert(offsetof(Copy2d, sourceDevice) == offsetof(CUDA_MEMCPY2D, srcDevice));
static_assert(offsetof(Copy2d, sourcePitch) == offsetof(CUDA_MEMCPY2D, srcPitch));
static_assert(offsetof(Copy2d, targetDevice) == offsetof(CUDA_MEMCPY2D, dstDevice));
static_assert(offsetof(Copy2d, targetPitch) == offsetof(CUDA_MEMCPY2D, dstPitch));
static_assert(offsetof(Copy2d, height) == offsetof(CUDA_MEMCPY2D, Height));

CLEAVE_SAME(computeF32, CUBLAS_COMPUTE_32F)
CLEAVE_SAME(computeF64, CUBLAS_COMPUTE_64F)
CLEAVE_SAME(realF32, CUDA_R_32F)
CLEAVE_SAME(realF64, CUDA_R_64F)
CLEAVE_SAME(realF16, CUDA_R_16F)
CLEAVE_SAME(realBf16, CUDA_R_16BF)
CLEAVE_SAME(realF8E4M3, CUDA_R_8F_E4M3)
CLEAVE_SAME(realF8E5M2, CUDA_R_8F_E5M2)
CLEAVE_SAME(operationN, CUBLAS_OP_N)
CLEAVE_SAME(operationT, CUBLAS_OP_T)
CLEAVE_SAME(matmulTransA, CUBLASLT_MATMUL_DESC_TRANSA)
CLEAVE_SAME(matmulTransB, CUBLASLT_MATMUL_DESC_TRANSB)
CLEAVE_SAME(matmulEpilogue, CUBLASLT_MATMUL_DESC_EPILOGUE)
CLEAVE_SAME(matmulBiasPointer, CUBLASLT_MATMUL_DESC_BIAS_POINTER)
CLEAVE_SAME(matmulBiasType, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE)
CLEAVE_SAME(epilogueBias, CUBLASLT_EPILOGUE_BIAS)
CLEAVE_SAME(computeTf32, CUBLAS_COMPUTE_32F_FAST_TF32)
CLEAVE_SAME(matmulAuxPointer, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER)
CLEAVE_SAME(matmulAuxLeading, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD)
CLEAVE_SAME(epilogueGelu, CUBLASLT_EPILOGUE_GELU)
CLEAVE_SAME(epilogueGelu | epilogueBias, CUBLASLT_EPILOGUE_GELU_BIAS)
CLEAVE_SAME(epilogueGelu | epilogueAux, CUBLASLT_EPILOGUE_GELU_AUX)
CLEAVE_SAME(epilogueGelu | epilogueAux | epilogueBias, CUBLASLT_EPILOGUE_GELU_AUX_BIAS)
CLEAVE_SAME(epilogueGeluGradient, CUBLASLT_EPILOGUE_DGELU)
CLEAVE_SAME(epilogueSumA, CUBLASLT_EPILOGUE_BGRADA)
CLEAVE_SAME(epilogueSumB, CUBLASLT_EPILOGUE_BGRADB)
CLEAVE_SAME(layoutBatchCount, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
CLEAVE_SAME(layoutBatchStride, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)
CLEAVE_SAME(preferenceWorkspace, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
CLEAVE_SAME(preferenceAlignmentA, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES)
CLEAVE_SAME(preferenceAlignmentB, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES)
CLEAVE_SAME(preferenceAlignmentC, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES)
CLEAVE_SAME(preferenceAlignmentD, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES)
CLEAVE_SAME(blasInvalidValue, CUBLAS_STATUS_INVALID_VALUE)
CLEAVE_SAME(blasNotSupported, CUBLAS_STATUS_NOT_SUPPORTED)
static_assert(sizeof(MatmulAlgorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(MatmulHeuristic) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(MatmulHeuristic, workspaceBytes) == offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(MatmulHeuristic, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));

CLEAVE_SAME(dnnConvolution, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)
CLEAVE_SAME(dnnEngine, CUDNN_BACKEND_ENGINE_DESCRIPTOR)
CLEAVE_SAME(dnnTypeNumericalNote, CUDNN_TYPE_NUMERICAL_NOTE)
CLEAVE_SAME(dnnConfigurationEngine, CUDNN_ATTR_ENGINECFG_ENGINE)
CLEAVE_SAME(dnnEngineNotes, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE)
CLEAVE_SAME(dnnNoteTensorCore, CUDNN_NUMERICAL_NOTE_TENSOR_CORE)
CLEAVE_SAME(dnnNoteNarrowInputs, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS)
CLEAVE_SAME(dnnNoteCount, CUDNN_NUMERICAL_NOTE_TYPE_COUNT)
CLEAVE_SAME(dnnEngineConfiguration, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
CLEAVE_SAME(dnnEngineHeuristic, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)
CLEAVE_SAME(dnnExecutionPlan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)
CLEAVE_SAME(dnnConvolutionForward, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)
CLEAVE_SAME(dnnConvolutionBackwardFilter, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR)
CLEAVE_SAME(dnnConvolutionBackwardData, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR)
CLEAVE_SAME(dnnOperationGraph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
CLEAVE_SAME(dnnVariantPack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
CLEAVE_SAME(dnnTensor, CUDNN_BACKEND_TENSOR_DESCRIPTOR)
CLEAVE_SAME(dnnTypeHandle, CUDNN_TYPE_HANDLE)
CLEAVE_SAME(dnnTypeDataType, CUDNN_TYPE_DATA_TYPE)
CLEAVE_SAME(dnnTypeInt64, CUDNN_TYPE_INT64)
CLEAVE_SAME(dnnTypeFloat, CUDNN_TYPE_FLOAT)
CLEAVE_SAME(dnnTypeDouble, CUDNN_TYPE_DOUBLE)
CLEAVE_SAME(dnnTypeVoidPointer, CUDNN_TYPE_VOID_PTR)
CLEAVE_SAME(dnnTypeConvolutionMode, CUDNN_TYPE_CONVOLUTION_MODE)
CLEAVE_SAME(dnnTypeHeuristicMode, CUDNN_TYPE_HEUR_MODE)
CLEAVE_SAME(dnnTypeDescriptor, CUDNN_TYPE_BACKEND_DESCRIPTOR)
CLEAVE_SAME(dnnConvolutionComputeType, CUDNN_ATTR_CONVOLUTION_COMP_TYPE)
CLEAVE_SAME(dnnConvolutionMode, CUDNN_ATTR_CONVOLUTION_CONV_MODE)
CLEAVE_SAME(dnnConvolutionDilations, CUDNN_ATTR_CONVOLUTION_DILATIONS)
CLEAVE_SAME(dnnConvolutionStrides, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES)
CLEAVE_SAME(dnnConvolutionPostPaddings, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS)
CLEAVE_SAME(dnnConvolutionPrePaddings, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS)
CLEAVE_SAME(dnnConvolutionSpatialDims, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS)
CLEAVE_SAME(dnnHeuristicMode, CUDNN_ATTR_ENGINEHEUR_MODE)
CLEAVE_SAME(dnnHeuristicGraph, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)
CLEAVE_SAME(dnnHeuristicResults, CUDNN_ATTR_ENGINEHEUR_RESULTS)
CLEAVE_SAME(dnnPlanHandle, CUDNN_ATTR_EXECUTION_PLAN_HANDLE)
CLEAVE_SAME(dnnPlanConfiguration, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)
CLEAVE_SAME(dnnPlanWorkspace, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)
CLEAVE_SAME(dnnForwardAlpha, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA)
CLEAVE_SAME(dnnForwardAlpha + 3, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W)
CLEAVE_SAME(dnnForwardAlpha + 4, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X)
CLEAVE_SAME(dnnForwardAlpha + 5, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y)
CLEAVE_SAME(dnnBackwardDataAlpha, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA)
CLEAVE_SAME(dnnBackwardDataAlpha + 3, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W)
CLEAVE_SAME(dnnBackwardDataAlpha + 4, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX)
CLEAVE_SAME(dnnBackwardDataAlpha + 5, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY)
CLEAVE_SAME(dnnBackwardFilterAlpha, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA)
CLEAVE_SAME(dnnBackwardFilterAlpha + 3, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW)
CLEAVE_SAME(dnnBackwardFilterAlpha + 4, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X)
CLEAVE_SAME(dnnBackwardFilterAlpha + 5, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY)
CLEAVE_SAME(dnnGraphHandle, CUDNN_ATTR_OPERATIONGRAPH_HANDLE)
CLEAVE_SAME(dnnGraphOperations, CUDNN_ATTR_OPERATIONGRAPH_OPS)
CLEAVE_SAME(dnnTensorAlignment, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT)
CLEAVE_SAME(dnnTensorDataType, CUDNN_ATTR_TENSOR_DATA_TYPE)
CLEAVE_SAME(dnnTensorDimensions, CUDNN_ATTR_TENSOR_DIMENSIONS)
CLEAVE_SAME(dnnTensorStrides, CUDNN_ATTR_TENSOR_STRIDES)
CLEAVE_SAME(dnnTensorUniqueId, CUDNN_ATTR_TENSOR_UNIQUE_ID)
CLEAVE_SAME(dnnPackUniqueIds, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS)
CLEAVE_SAME(dnnPackPointers, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)
CLEAVE_SAME(dnnPackWorkspace, CUDNN_ATTR_VARIANT_PACK_WORKSPACE)
CLEAVE_SAME(dnnModeFallback, CUDNN_HEUR_MODE_FALLBACK)
CLEAVE_SAME(dnnModeA, CUDNN_HEUR_MODE_A)
CLEAVE_SAME(dnnCrossCorrelation, CUDNN_CROSS_CORRELATION)
CLEAVE_SAME(dnnFloat, CUDNN_DATA_FLOAT)
CLEAVE_SAME(dnnDouble, CUDNN_DATA_DOUBLE)
CLEAVE_SAME(dnnHalf, CUDNN_DATA_HALF)
CLEAVE_SAME(dnnBfloat16, CUDNN_DATA_BFLOAT16)
CLEAVE_SAME(dnnPointwise, CUDNN_BACKEND_POINTWISE_DESCRIPTOR)
CLEAVE_SAME(dnnPointwiseOperation, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
CLEAVE_SAME(dnnMatmul, CUDNN_BACKEND_MATMUL_DESCRIPTOR)
CLEAVE_SAME(dnnMatmulOperation, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
CLEAVE_SAME(dnnReduction, CUDNN_BACKEND_REDUCTION_DESCRIPTOR)
CLEAVE_SAME(dnnReductionOperation, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
CLEAVE_SAME(dnnReshapeOperation, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR)
CLEAVE_SAME(dnnTypeBoolean, CUDNN_TYPE_BOOLEAN)
CLEAVE_SAME(dnnTypePointwiseMode, CUDNN_TYPE_POINTWISE_MODE)
CLEAVE_SAME(dnnTypeReductionOperator, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE)
CLEAVE_SAME(dnnPointwiseMode, CUDNN_ATTR_POINTWISE_MODE)
CLEAVE_SAME(dnnPointwisePrecision, CUDNN_ATTR_POINTWISE_MATH_PREC)
CLEAVE_SAME(dnnPointwiseAxis, CUDNN_ATTR_POINTWISE_AXIS)
CLEAVE_SAME(dnnPointwiseOf, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR)
CLEAVE_SAME(dnnPointwiseX, CUDNN_ATTR_OPERATION_POINTWISE_XDESC)
CLEAVE_SAME(dnnPointwiseB, CUDNN_ATTR_OPERATION_POINTWISE_BDESC)
CLEAVE_SAME(dnnPointwiseY, CUDNN_ATTR_OPERATION_POINTWISE_YDESC)
CLEAVE_SAME(dnnPointwiseT, CUDNN_ATTR_OPERATION_POINTWISE_TDESC)
CLEAVE_SAME(dnnMatmulComputeType, CUDNN_ATTR_MATMUL_COMP_TYPE)
CLEAVE_SAME(dnnMatmulA, CUDNN_ATTR_OPERATION_MATMUL_ADESC)
CLEAVE_SAME(dnnMatmulB, CUDNN_ATTR_OPERATION_MATMUL_BDESC)
CLEAVE_SAME(dnnMatmulC, CUDNN_ATTR_OPERATION_MATMUL_CDESC)
CLEAVE_SAME(dnnMatmulOf, CUDNN_ATTR_OPERATION_MATMUL_DESC)
CLEAVE_SAME(dnnReductionOperator, CUDNN_ATTR_REDUCTION_OPERATOR)
CLEAVE_SAME(dnnReductionComputeType, CUDNN_ATTR_REDUCTION_COMP_TYPE)
CLEAVE_SAME(dnnReductionX, CUDNN_ATTR_OPERATION_REDUCTION_XDESC)
CLEAVE_SAME(dnnReductionY, CUDNN_ATTR_OPERATION_REDUCTION_YDESC)
CLEAVE_SAME(dnnReductionOf, CUDNN_ATTR_OPERATION_REDUCTION_DESC)
CLEAVE_SAME(dnnReshapeX, CUDNN_ATTR_OPERATION_RESHAPE_XDESC)
CLEAVE_SAME(dnnReshapeY, CUDNN_ATTR_OPERATION_RESHAPE_YDESC)
CLEAVE_SAME(dnnTensorIsVirtual, CUDNN_ATTR_TENSOR_IS_VIRTUAL)
CLEAVE_SAME(dnnTensorIsByValue, CUDNN_ATTR_TENSOR_IS_BY_VALUE)
CLEAVE_SAME(dnnInt32, CUDNN_DATA_INT32)
CLEAVE_SAME(dnnBoolean, CUDNN_DATA_BOOLEAN)
CLEAVE_SAME(dnnAdd, CUDNN_POINTWISE_ADD)
CLEAVE_SAME(dnnMul, CUDNN_POINTWISE_MUL)
CLEAVE_SAME(dnnDiv, CUDNN_POINTWISE_DIV)
CLEAVE_SAME(dnnSub, CUDNN_POINTWISE_SUB)
CLEAVE_SAME(dnnExp, CUDNN_POINTWISE_EXP)
CLEAVE_SAME(dnnLog, CUDNN_POINTWISE_LOG)
CLEAVE_SAME(dnnIdentity, CUDNN_POINTWISE_IDENTITY)
CLEAVE_SAME(dnnNoteNondeterministic, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)
CLEAVE_SAME(dnnTanh, CUDNN_POINTWISE_TANH_FWD)
CLEAVE_SAME(dnnTanhBackward, CUDNN_POINTWISE_TANH_BWD)
CLEAVE_SAME(dnnGreater, CUDNN_POINTWISE_CMP_GT)
CLEAVE_SAME(dnnPointwiseDx, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC)
CLEAVE_SAME(dnnPointwiseDy, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC)
CLEAVE_SAME(dnnGreaterOrEqual, CUDNN_POINTWISE_CMP_GE)
CLEAVE_SAME(dnnGenIndex, CUDNN_POINTWISE_GEN_INDEX)
CLEAVE_SAME(dnnSelect, CUDNN_POINTWISE_BINARY_SELECT)
CLEAVE_SAME(dnnReduceAdd, CUDNN_REDUCE_TENSOR_ADD)
CLEAVE_SAME(dnnReduceMax, CUDNN_REDUCE_TENSOR_MAX)

static_assert(sizeof(NcclId) == sizeof(::ncclUniqueId));
CLEAVE_SAME(ncclOk, ::ncclSuccess)
CLEAVE_SAME(ncclBusy, ::ncclInProgress)
CLEAVE_SAME(cuda::ncclInt8, ::ncclInt8)
CLEAVE_SAME(cuda::ncclUint8, ::ncclUint8)
CLEAVE_SAME(cuda::ncclInt32, ::ncclInt32)
CLEAVE_SAME(cuda::ncclUint32, ::ncclUint32)
CLEAVE_SAME(cuda::ncclInt64, ::ncclInt64)
CLEAVE_SAME(cuda::ncclUint64, ::ncclUint64)
CLEAVE_SAME(cuda::ncclFloat16, ::ncclFloat16)
CLEAVE_SAME(cuda::ncclFloat32, ::ncclFloat32)
CLEAVE_SAME(cuda::ncclFloat64, ::ncclFloat64)
CLEAVE_SAME(cuda::ncclBfloat16, ::ncclBfloat16)
CLEAVE_SAME(cuda::ncclSum, ::ncclSum)
CLEAVE_SAME(cuda::ncclMax, ::ncclMax)
CLEAVE_SAME(cuda::ncclMin, ::ncclMin)

} // namespace
} // namespace cleave::runtime::cuda
