// A libcuda that finds no GPU. The engines of a real cuDNN look for its functions when they are loaded (FAKE_CUDNN_PLANS);
// they are compiled for a GPU's properties, and a call is refused as CUDA_ERROR_NO_DEVICE.
#define REFUSED(name)                                                                                                  \
  int name() { return 100; }

extern "C" {
int cuDriverGetVersion(int *version) { return *version = 13000, 0; }
int cuDeviceGetCount(int *count) { return *count = 0, 0; }
int cuGetErrorString(int, const char **text) { return *text = "there is no GPU", 0; }
REFUSED(cuCtxGetCurrent)
REFUSED(cuCtxGetLimit)
REFUSED(cuCtxPopCurrent)
REFUSED(cuCtxPushCurrent)
REFUSED(cuDeviceGet)
REFUSED(cuDeviceGetAttribute)
REFUSED(cuFuncGetAttribute)
REFUSED(cuFuncSetAttribute)
REFUSED(cuGetErrorName)
REFUSED(cuInit)
REFUSED(cuKernelGetAttribute)
REFUSED(cuKernelGetFunction)
REFUSED(cuKernelSetAttribute)
REFUSED(cuLaunchCooperativeKernel)
REFUSED(cuLaunchKernel)
REFUSED(cuLaunchKernelEx)
REFUSED(cuLibraryGetKernel)
REFUSED(cuLibraryLoadData)
REFUSED(cuLibraryLoadFromFile)
REFUSED(cuLibraryUnload)
REFUSED(cuLinkAddData)
REFUSED(cuLinkComplete)
REFUSED(cuLinkCreate)
REFUSED(cuLinkDestroy)
REFUSED(cuModuleGetFunction)
REFUSED(cuModuleLoadData)
REFUSED(cuModuleLoadDataEx)
REFUSED(cuModuleUnload)
REFUSED(cuOccupancyMaxPotentialClusterSize)
REFUSED(cuStreamGetCtx)
REFUSED(cuTensorMapEncodeIm2col)
REFUSED(cuTensorMapEncodeTiled)
}
