"""The actor: one turn of acting, for the service and for `fallow apply` alike."""
