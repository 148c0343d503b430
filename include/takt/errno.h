/* Error numbers of hypercalls and of functions that return int: 0 or a negative one of these.
 * The values are those of Linux, so that a guest's own table reads them. */
#ifndef TAKT_ERRNO_H
#define TAKT_ERRNO_H

#define EPERM     1
#define ENOENT    2
#define EIO       5
#define E2BIG     7
#define EAGAIN    11
#define ENOMEM    12
#define EACCES    13
#define EFAULT    14
#define EBUSY     16
#define EEXIST    17
#define ENODEV    19
#define EINVAL    22
#define ENOSPC    28
#define EROFS     30
#define ERANGE    34
#define ENOSYS    38
#define ETIMEDOUT 110

#endif
