"""JupyterHub for a class on one machine, as in TEACHING.md, but without passwords."""

import os

c = get_config()  # noqa: F821, JupyterHub defines it

# A class needs a real authenticator and spawner; these need no accounts on the machine.
c.JupyterHub.authenticator_class = "dummy"
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = os.environ["HUB_HOMES"] + "/{username}"
c.Spawner.args = ["--LabApp.expose_app_in_browser=True", "--allow-root"]
c.Spawner.start_timeout = c.Spawner.http_timeout = 900  # on a busy machine too
c.ConfigurableHTTPProxy.command = os.environ["HUB_PROXY"]
c.JupyterHub.bind_url = f"http://127.0.0.1:{os.environ['HUB_PORT']}"
c.JupyterHub.hub_port = int(os.environ["HUB_OWN_PORT"])
c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{os.environ['HUB_PROXY_PORT']}"

# These lines are for every hub, as TEACHING.md has them.
c.Authenticator.allow_all = True
c.Spawner.cmd = ["paged-attention-course", "hub", "lessons"]
c.Spawner.default_url = "/lab/tree/lessons/00_start_here.ipynb"
c.JupyterHub.shutdown_on_logout = True
