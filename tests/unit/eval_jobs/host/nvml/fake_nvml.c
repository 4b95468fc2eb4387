/* A libnvidia-ml.so.1 of two GPUs: HALF lacks what old drivers lack, LOST has lost its second GPU, ABSENT its driver. */
#include <string.h>
typedef unsigned long long u64;
typedef struct { unsigned pid; u64 bytes; unsigned gpu_instance, compute_instance; } process;
typedef struct { char old[16]; unsigned domain, bus, device, ids, sub_ids; char bus_id[32]; } pci;
enum { NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, GPU_IS_LOST = 15 };
#ifdef LOST
#define ANSWER(device) if ((u64)(device) == 2) return GPU_IS_LOST;
#else
#define ANSWER(device)
#endif

#ifdef ABSENT
int nvmlInitWithFlags(unsigned flags) { return DRIVER_NOT_LOADED; }
#else
int nvmlInitWithFlags(unsigned flags) { return 0; }
#endif
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return "in words"; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, u64 *device) { *device = index + 1; return 0; }
int nvmlDeviceGetUUID(void *device, char *text, unsigned size) {
    strcpy(text, (u64)device == 1 ? "GPU-a" : "GPU-b"); return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { strcpy(text, "550.54.15"); return 0; }
int nvmlDeviceGetMemoryInfo(void *device, u64 *memory) {
    ANSWER(device) memory[0] = 80000; memory[1] = 20000; memory[2] = 60000; return 0; }
int nvmlDeviceGetUtilizationRates(void *device, unsigned *rates) {
    ANSWER(device) if ((u64)device == 2) return NOT_SUPPORTED; rates[0] = 97; rates[1] = 5; return 0; }
int nvmlDeviceGetTemperature(void *device, unsigned sensor, unsigned *celsius) {
    ANSWER(device) *celsius = sensor == 0 ? 93 : 1; return 0; }
#ifdef HALF
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, u64 *reasons) { *reasons = 4 + 1; return 0; }
int nvmlDeviceGetComputeRunningProcesses_v2(void *device, unsigned *count, process *found) { *count = 0; return 0; }
#else
int nvmlDeviceGetName(void *device, char *text, unsigned size) { strcpy(text, "NVIDIA H100"); return 0; }
int nvmlDeviceGetPersistenceMode(void *device, unsigned *mode) { *mode = 1; return 0; }
int nvmlDeviceGetPciInfo_v3(void *device, pci *found) { strcpy(found->bus_id, "00000000:C1:00.0"); return 0; }
int nvmlDeviceGetTemperatureThreshold(void *device, unsigned which, unsigned *celsius) {
    ANSWER(device) *celsius = which == 1 ? 92 : 1; return 0; }
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) { ANSWER(device) *milliwatts = 650500; return 0; }
int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *milliwatts) { ANSWER(device) *milliwatts = 700000; return 0; }
int nvmlDeviceGetCurrentClocksEventReasons(void *device, u64 *reasons) { ANSWER(device) *reasons = 0xff; return 0; }
int nvmlDeviceGetTotalEccErrors(void *device, unsigned type, unsigned counter, u64 *errors) {
    ANSWER(device) *errors = type == 1 && counter == 0 ? 2 : 99; return 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, process *found) {
    ANSWER(device)
    if (found == 0) { *count = 2; return INSUFFICIENT_SIZE; }
    found[0].pid = 11; found[0].bytes = 50000; found[1].pid = 12; found[1].bytes = ~0ULL; /* not available */
    *count = 2; return 0; }
#endif
