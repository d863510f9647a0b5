/* native.h - whether programs for kernels that run may be machine code (live/live.h): asked of each device before a session has guards. */
#ifndef EGPU_CLI_NATIVE_H
#define EGPU_CLI_NATIVE_H

#include "live/program.h"

/* Runs a program on every device of the driver, inside a kernel that runs, interpreted and as machine code that came meanwhile, in a child process
 * that a device's error may end. Where each device gives what the host computes it is the native tier; else why says what failed.
 * With EGPU_LIVE_TIER=interpreted no device is asked. Takes at most some 10 seconds, whatever a device does. *out points to why. */
void native_choose(const char *driver, struct live_choice *out, char why[256]);

#endif
