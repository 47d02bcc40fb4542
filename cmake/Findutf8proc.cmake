# utf8proc (Unicode tables and normalization): target utf8proc::utf8proc, static where there is an archive.
find_path(utf8proc_INCLUDE_DIR utf8proc.h)
find_library(utf8proc_LIBRARY NAMES libutf8proc.a utf8proc)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(utf8proc REQUIRED_VARS utf8proc_LIBRARY utf8proc_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "Debian package libutf8proc-dev")
mark_as_advanced(utf8proc_INCLUDE_DIR utf8proc_LIBRARY)
if(utf8proc_FOUND AND NOT TARGET utf8proc::utf8proc)
  add_library(utf8proc::utf8proc UNKNOWN IMPORTED)
  set_target_properties(utf8proc::utf8proc PROPERTIES IMPORTED_LOCATION ${utf8proc_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${utf8proc_INCLUDE_DIR} INTERFACE_COMPILE_DEFINITIONS UTF8PROC_STATIC)
endif()
