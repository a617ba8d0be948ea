/* Typed, bounded access to a parsed configuration file. */
#include "src/json_conf.h"

#include "src/os.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_BYTES ((size_t)64 << 20)

enum status json_conf_open(struct json_conf *c, const char *dir, const char *name, bool optional,
                           struct err *e)
{
    *c = (struct json_conf){.e = e};
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path)
        return c->rc = err_set(e, E_MODEL, "%.200s...: path too long", dir);
    snprintf(c->file, sizeof c->file, "%s", name);
    if (access(path, F_OK) != 0) {
        if (optional) return OK;
        return c->rc = err_set(e, E_MODEL, "%s does not exist", path);
    }
    char *text;
    size_t len;
    c->rc = os_read_file(path, MAX_BYTES, &text, &len, e);
    if (c->rc) {
        if (e) e->code = E_MODEL;
        return c->rc = E_MODEL;
    }
    const char *end = NULL;
    c->root = cJSON_ParseWithLengthOpts(text, len + 1, &end, true);
    if (!c->root || !cJSON_IsObject(c->root)) {
        size_t at = end && end >= text ? (size_t)(end - text) : 0;
        c->rc = err_set(e, E_MODEL, "%s is not a JSON object (fault near byte %zu of %zu)", path,
                        at, len);
        json_conf_close(c);
    }
    free(text);
    return c->rc;
}

void json_conf_close(struct json_conf *c)
{
    cJSON_Delete(c->root);
    c->root = NULL;
}

void json_conf_fail(struct json_conf *c, const char *fmt, ...)
{
    if (c->rc) return;
    char what[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    c->rc = err_set(c->e, E_MODEL, "%s: %s", c->file, what);
}

const cJSON *json_conf_get(const cJSON *obj, const char *name)
{
    const cJSON *v = obj ? cJSON_GetObjectItemCaseSensitive(obj, name) : NULL;
    return v && !cJSON_IsNull(v) ? v : NULL;
}

double json_conf_real(struct json_conf *c, const cJSON *obj, const char *name, double min,
                      double max, double fallback)
{
    const cJSON *v = json_conf_get(obj, name);
    if (!v) {
        if (isnan(fallback)) json_conf_fail(c, "%s is missing", name);
        return fallback;
    }
    if (!cJSON_IsNumber(v)) {
        json_conf_fail(c, "%s is no number", name);
    } else if (!(v->valuedouble >= min && v->valuedouble <= max)) {
        json_conf_fail(c, "%s is %g, expected %g to %g", name, v->valuedouble, min, max);
    } else {
        return v->valuedouble;
    }
    return isnan(fallback) ? min : fallback;
}

int64_t json_conf_int(struct json_conf *c, const cJSON *obj, const char *name, int64_t min,
                      int64_t max, int64_t fallback)
{
    double other = fallback == CONF_REQUIRED ? NAN : (double)fallback;
    double v = json_conf_real(c, obj, name, (double)min, (double)max, other);
    if (v != floor(v)) json_conf_fail(c, "%s is %g, expected a whole number", name, v);
    return (int64_t)v;
}

bool json_conf_bool(struct json_conf *c, const cJSON *obj, const char *name, bool fallback)
{
    const cJSON *v = json_conf_get(obj, name);
    if (v && !cJSON_IsBool(v)) json_conf_fail(c, "%s is neither true nor false", name);
    return v ? cJSON_IsTrue(v) : fallback;
}

const char *json_conf_string(struct json_conf *c, const cJSON *obj, const char *name, bool required)
{
    const cJSON *v = json_conf_get(obj, name);
    if (v && cJSON_IsString(v)) return v->valuestring;
    if (v || required) json_conf_fail(c, "%s is %s", name, v ? "no string" : "missing");
    return NULL;
}

const cJSON *json_conf_object(struct json_conf *c, const cJSON *obj, const char *name,
                              bool required)
{
    const cJSON *v = json_conf_get(obj, name);
    if (v && cJSON_IsObject(v)) return v;
    if (v || required) json_conf_fail(c, "%s is %s", name, v ? "no object" : "missing");
    return NULL;
}
