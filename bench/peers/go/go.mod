// SPDX-License-Identifier: MIT

module peers/gobench

go 1.19
