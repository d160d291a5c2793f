"""The policies that come with Fallow: YAML files, read by `actions.policy.shipped`."""
