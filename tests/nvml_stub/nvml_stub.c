/* A stand-in for libnvidia-ml.so.1 that a test scripts while it runs.
 *
 * Every call reads the file named by LUDWIG_NVML_STUB anew, so what a test writes there is what the
 * next call answers. Lines of `key=value`; `0.` means GPU 0; a missing key has the default shown:
 *
 *     init=0                    what nvmlInit returns (9: driver not loaded, 18: version mismatch)
 *     load=1                    when it changes, the driver was reloaded: calls fail with
 *                               UNINITIALIZED (1) until the caller has initialised again
 *     delay_ms=0                how long every call takes
 *     count=0
 *     error.<function>=0        what this function returns, whatever the GPU
 *     0.name= 0.uuid= 0.bus=    the names that nvidia-smi shows
 *     0.utilization=0           percent
 *     0.memory_total=0  0.memory_used=0  0.memory_reserved=0     bytes
 *     0.temperature=0           degrees Celsius
 *     0.power=0                 milliwatts
 *     0.compute= 0.graphics=    processes: pid:bytes,pid:bytes (`-` for "not available")
 *     0.lost=0                  1: every call on this GPU fails with GPU_IS_LOST (15)
 *     0.error.<function>=0      what this function returns on this GPU
 *
 * Without the variable or the file nvmlInit returns LIBRARY_NOT_FOUND (12): as if it were not there.
 * It holds the functions that nvidia-ml-py 13 looks up for what `worker/gpu.py` asks, no more.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    INSUFFICIENT_SIZE = 7,
    LIBRARY_NOT_FOUND = 12,
    GPU_IS_LOST = 15
};

typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2_t;
typedef struct { unsigned gpu, memory; } utilization_t;
typedef struct { unsigned version, sensor; int temperature; } temperature_t;
typedef struct {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
} process_t;
typedef struct {
    char bus_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} pci_t;

/* How often the library is initialised, and the `load` that the last initialisation saw. */
static int references;
static long long load_seen;

/* ---- the state file ---- */

/* The whole file, to be freed; NULL when there is none. */
static char *read_state(void)
{
    const char *path = getenv("LUDWIG_NVML_STUB");
    FILE *file = path ? fopen(path, "rb") : NULL;
    if (!file)
        return NULL;
    size_t size = 0, room = 65536;
    char *text = malloc(room);
    size_t got;
    while (text && (got = fread(text + size, 1, room - size - 1, file)) > 0) {
        size += got;
        if (size + 1 == room)
            text = realloc(text, room *= 2);
    }
    fclose(file);
    if (text)
        text[size] = '\0';
    return text;
}

/* The value of a key, to be freed; NULL when it is not there. */
static char *value_of(const char *key)
{
    char *state = read_state(), *found = NULL, *rest = state, *line;
    size_t length = strlen(key);
    while (state && (line = strtok_r(rest, "\n", &rest)))
        if (!strncmp(line, key, length) && line[length] == '=') {
            found = strdup(line + length + 1);
            break;
        }
    free(state);
    return found;
}

static long long number(const char *key, long long otherwise)
{
    char *text = value_of(key);
    long long value = text && *text ? atoll(text) : otherwise;
    free(text);
    return value;
}

static char *gpu_text(void *device, const char *key)
{
    char full[128];
    snprintf(full, sizeof full, "%zu.%s", (size_t)device - 1, key);
    return value_of(full);
}

static long long gpu_number(void *device, const char *key)
{
    char full[128];
    snprintf(full, sizeof full, "%zu.%s", (size_t)device - 1, key);
    return number(full, 0);
}

/* ---- what fails ---- */

static int check(const char *function)
{
    char key[128];
    long long delay = number("delay_ms", 0);
    struct timespec pause = {delay / 1000, delay % 1000 * 1000000};
    if (delay)
        nanosleep(&pause, NULL);
    snprintf(key, sizeof key, "error.%s", function);
    int scripted = (int)number(key, SUCCESS);
    if (scripted)
        return scripted;
    return references && number("load", 1) == load_seen ? SUCCESS : UNINITIALIZED;
}

static int check_gpu(void *device, const char *function)
{
    char key[128];
    int failed = check(function);
    if (failed)
        return failed;
    if (!device || (long long)(size_t)device > number("count", 0))
        return INVALID_ARGUMENT;
    if (gpu_number(device, "lost"))
        return GPU_IS_LOST;
    snprintf(key, sizeof key, "error.%s", function);
    return (int)gpu_number(device, key);
}

static int copy_text(char *text, char *target, unsigned room)
{
    int fits = !text || strlen(text) < room;
    if (fits)
        strcpy(target, text ? text : "");
    free(text);
    return fits ? SUCCESS : INSUFFICIENT_SIZE;
}

#define CHECK()                                                                                    \
    do {                                                                                           \
        int failed = check(__func__);                                                              \
        if (failed)                                                                                \
            return failed;                                                                         \
    } while (0)
#define CHECK_GPU()                                                                                \
    do {                                                                                           \
        int failed = check_gpu(device, __func__);                                                  \
        if (failed)                                                                                \
            return failed;                                                                         \
    } while (0)

/* ---- the library ---- */

int nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    char *state = read_state();
    if (!state)
        return LIBRARY_NOT_FOUND;
    free(state);
    int failed = (int)number("init", SUCCESS);
    if (failed)
        return failed;
    references++;
    load_seen = number("load", 1);
    return SUCCESS;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void)
{
    if (!references)
        return UNINITIALIZED;
    references--;
    return SUCCESS;
}

const char *nvmlErrorString(int code)
{
    static const char *const names[] = {
        "Success", "Uninitialized", "Invalid Argument", "Not Supported",
        "Insufficient Permissions", "Already Initialized", "Not Found", "Insufficient Size",
        "Insufficient External Power", "Driver Not Loaded", "Timeout", "Interrupt Request Issue",
        "NVML Shared Library Not Found", "Function Not Found", "Corrupted infoROM", "GPU is lost",
        "GPU requires restart", "The operating system has blocked the request",
        "RM has detected an NVML/RM version mismatch"};
    int known = code >= 0 && code < (int)(sizeof names / sizeof *names);
    return known ? names[code] : "Unknown Error";
}

int nvmlSystemGetDriverVersion(char *version, unsigned room)
{
    CHECK();
    char *text = value_of("driver");
    return copy_text(text ? text : strdup("570.86.10"), version, room);
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    CHECK();
    *count = (unsigned)number("count", 0);
    return SUCCESS;
}

/* A handle is the index plus one: it stays good as long as the GPU is there. */
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **result)
{
    void *device = (void *)((size_t)index + 1);
    CHECK_GPU();
    *result = device;
    return SUCCESS;
}

int nvmlDeviceGetName(void *device, char *name, unsigned room)
{
    CHECK_GPU();
    return copy_text(gpu_text(device, "name"), name, room);
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned room)
{
    CHECK_GPU();
    return copy_text(gpu_text(device, "uuid"), uuid, room);
}

int nvmlDeviceGetPciInfo_v3(void *device, pci_t *pci)
{
    CHECK_GPU();
    memset(pci, 0, sizeof *pci);
    return copy_text(gpu_text(device, "bus"), pci->bus_id, sizeof pci->bus_id);
}

int nvmlDeviceGetUtilizationRates(void *device, utilization_t *rates)
{
    CHECK_GPU();
    rates->gpu = (unsigned)gpu_number(device, "utilization");
    rates->memory = 0;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(void *device, memory_v2_t *memory)
{
    CHECK_GPU();
    memory->total = (unsigned long long)gpu_number(device, "memory_total");
    memory->used = (unsigned long long)gpu_number(device, "memory_used");
    memory->reserved = (unsigned long long)gpu_number(device, "memory_reserved");
    memory->free = memory->total - memory->used - memory->reserved;
    return SUCCESS;
}

/* The old call counts what the driver keeps for itself as used. */
int nvmlDeviceGetMemoryInfo(void *device, memory_t *memory)
{
    CHECK_GPU();
    memory->total = (unsigned long long)gpu_number(device, "memory_total");
    memory->used = (unsigned long long)gpu_number(device, "memory_used")
                   + (unsigned long long)gpu_number(device, "memory_reserved");
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

int nvmlDeviceGetTemperatureV(void *device, temperature_t *temperature)
{
    CHECK_GPU();
    temperature->temperature = (int)gpu_number(device, "temperature");
    return SUCCESS;
}

int nvmlDeviceGetTemperature(void *device, unsigned sensor, unsigned *temperature)
{
    (void)sensor;
    CHECK_GPU();
    *temperature = (unsigned)gpu_number(device, "temperature");
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts)
{
    CHECK_GPU();
    *milliwatts = (unsigned)gpu_number(device, "power");
    return SUCCESS;
}

/* As many processes as fit; INSUFFICIENT_SIZE, with the number there are, when not all do. */
static int processes(void *device, const char *key, unsigned *count, process_t *target)
{
    char *list = gpu_text(device, key), *rest = list, *item;
    unsigned room = target ? *count : 0, found = 0;
    while (list && (item = strtok_r(rest, ",", &rest))) {
        char *bytes = strchr(item, ':');
        if (found < room) {
            memset(&target[found], 0, sizeof *target);
            target[found].pid = (unsigned)strtoul(item, NULL, 10);
            target[found].bytes =
                bytes && bytes[1] != '-' ? strtoull(bytes + 1, NULL, 10) : ~0ULL;
        }
        found++;
    }
    free(list);
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, process_t *target)
{
    CHECK_GPU();
    return processes(device, "compute", count, target);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, unsigned *count, process_t *target)
{
    CHECK_GPU();
    return processes(device, "graphics", count, target);
}
