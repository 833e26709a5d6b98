/* SPDX-License-Identifier: MIT */
/* Listeners, connections, datagrams, names: nothing is declared here yet. */
#ifndef WEFT_NET_H
#define WEFT_NET_H

#include <weft/base.h>

#endif
