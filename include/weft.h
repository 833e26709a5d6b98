/* SPDX-License-Identifier: MIT */
/* weft: a concurrency runtime for C. This header includes all of it, in reading order. */
#ifndef WEFT_H
#define WEFT_H

#include <weft/base.h>
#include <weft/runtime.h>
#include <weft/task.h>
#include <weft/scope.h>
#include <weft/chan.h>
#include <weft/select.h>
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
