#include "../../../services/token2wav/gpu/clusters/transformers.cu"
#include <cuda_runtime.h>
#include <cstdio>
extern "C" int launch(Arguments* arguments, int units, int chained, void* stream) {
    static bool ready = false;
    if (!ready) {
        cudaFuncSetAttribute(transformers, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES);
        cudaFuncSetAttribute(transformers, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
        ready = true;
    }
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(units * 32), config.blockDim = dim3(CONSUMERS + 32), config.dynamicSmemBytes = SHARED_BYTES;
    config.stream = (cudaStream_t)stream;
    cudaLaunchAttribute attributes[2];
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim.x = 16, attributes[0].val.clusterDim.y = 1, attributes[0].val.clusterDim.z = 1;
    attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[1].val.programmaticStreamSerializationAllowed = 1;
    config.attrs = attributes, config.numAttrs = chained ? 2 : 1;
    if (units == 0) {
        config.gridDim = dim3(128), config.numAttrs = 1;
        int clusters = 0;
        cudaError_t e = cudaOccupancyMaxActiveClusters(&clusters, transformers, &config);
        if (e != cudaSuccess) printf("occupancy: %s\n", cudaGetErrorString(e));
        return clusters;
    }
    cudaError_t e = cudaLaunchKernelEx(&config, transformers, *arguments);
    if (e != cudaSuccess) printf("launch: %s\n", cudaGetErrorString(e));
    return (int)e;
}
