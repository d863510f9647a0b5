/* device.h - a CUDA driver found at run time: NVIDIA's or softgpu's, by the path of its library.
 *
 * Calls that fail print why and return false, or 0 for addresses; nothing here exits. One device,
 * one context.
 */
#ifndef EGPU_TEST_DEVICE_H
#define EGPU_TEST_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct device;

/* NULL when the library or a device is missing; *why says which. */
struct device *device_open(const char *library, const char **why);
/* library NULL: softgpu of the build that EGPU_BUILD names. */
struct device *device_open_own(const char *library, const char **why);
void device_close(struct device *dev);
/* "sm_90" of the device. */
const char *device_target(const struct device *dev);
uint32_t device_sms(const struct device *dev);

uint64_t device_alloc(struct device *dev, size_t bytes); /* zeroed */
void device_free(struct device *dev, uint64_t at);
bool device_write(struct device *dev, uint64_t at, const void *from, size_t bytes);
bool device_read(struct device *dev, void *to, uint64_t at, size_t bytes);

/* A loaded module; the driver's compiler log goes to standard error when it is refused. */
struct device_module;
struct device_module *device_load(struct device *dev, const char *ptx);
void device_unload(struct device *dev, struct device_module *m);
uint64_t device_symbol(
	struct device *dev, struct device_module *m, const char *name, size_t *bytes);
/* Starts the kernel with 64-bit arguments; device_wait waits for all. */
bool device_launch(struct device *dev, struct device_module *m, const char *kernel,
	const uint32_t grid[3], const uint32_t block[3], const uint64_t *args, uint32_t n_args);
bool device_wait(struct device *dev);

#endif
