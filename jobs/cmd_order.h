/* Figures of order and speculation for people. */
#ifndef NS_CMD_ORDER_H
#define NS_CMD_ORDER_H

#include "jobs/pipeline.h"

/* A few lines on standard error: what a job cost and what a sweep gave. */
void cmd_tell_order(const struct pipeline_report *r);

#endif
