/* SPDX-License-Identifier: MIT */
/* weft: a concurrency runtime for C. This header includes all of it, in reading order.
 *
 * A program starts the runtime (runtime.h) and spawns tasks into scopes (task.h, scope.h), which talk over channels (chan.h, select.h).
 * What may wait takes a deadline as its last parameter, and ends with WEFT_ECANCELED when its scope is cancelled; base.h has the rule. 0 or positive is
 * success, negative an error: -errno from the kernel, or a WEFT_E… code (base.h). */
#ifndef WEFT_H
#define WEFT_H

#include <weft/base.h>
#include <weft/runtime.h>
#include <weft/task.h>
#include <weft/scope.h>
#include <weft/chan.h>
#include <weft/select.h>
#include <weft/typed.h>
#include <weft/time.h>
#include <weft/sync.h>
#include <weft/ticket.h>
#include <weft/token.h>
#include <weft/buf.h>
#include <weft/io.h>
#include <weft/net.h>
#include <weft/file.h>
#include <weft/process.h>
#include <weft/block.h>
#include <weft/thread.h>
#include <weft/loop.h>
#include <weft/promise.h>
#include <weft/debug.h>

#endif
