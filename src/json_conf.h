/* Fields of a JSON configuration file, each with its bounds.
 *
 * The first fault is kept and later calls do nothing, so that a reader checks once at the end.
 * Messages name file, field, expected and found. */
#ifndef NS_JSON_CONF_H
#define NS_JSON_CONF_H

#include "src/err.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

struct json_conf {
    char file[256]; /* for messages */
    cJSON *root;
    enum status rc;
    struct err *e;
};

/* Reads dir/name (at most 64 MiB). A file that does not exist is E_MODEL, or OK with root NULL when
 * optional. */
enum status json_conf_open(struct json_conf *c, const char *dir, const char *name, bool optional,
                           struct err *e);
void json_conf_close(struct json_conf *c);

/* obj may be NULL (as an object without fields). A null value counts as absent. The fallback of a
 * required number is CONF_REQUIRED. */
#define CONF_REQUIRED INT64_MIN
const cJSON *json_conf_get(const cJSON *obj, const char *name);
int64_t json_conf_int(struct json_conf *c, const cJSON *obj, const char *name, int64_t min,
                      int64_t max, int64_t fallback);
double json_conf_real(struct json_conf *c, const cJSON *obj, const char *name, double min,
                      double max, double fallback);
bool json_conf_bool(struct json_conf *c, const cJSON *obj, const char *name, bool fallback);
/* NULL when absent and not required */
const char *json_conf_string(struct json_conf *c, const cJSON *obj, const char *name,
                             bool required);
/* NULL when absent and not required */
const cJSON *json_conf_object(struct json_conf *c, const cJSON *obj, const char *name,
                              bool required);
void json_conf_fail(struct json_conf *c, const char *fmt, ...) PRINTF_LIKE(2, 3);

#endif
